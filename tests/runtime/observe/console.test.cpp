#include "runtime/observe/console.hpp"

#include <stdlib.h>
#include <unistd.h>

#include <array>
#include <catch2/catch_test_macros.hpp>
#include <string>
#include <thread>
#include <vector>

#include "runtime/observe/step_reporter.hpp"

namespace troupe::observe {
namespace {

// A pipe whose other end shows what was written.
class Pipe {
 public:
  Pipe() { REQUIRE(::pipe(ends_.data()) == 0); }
  ~Pipe() {
    ::close(ends_[0]);
    if (ends_[1] >= 0) ::close(ends_[1]);
  }
  int writing() const { return ends_[1]; }
  std::string read_all() {
    ::close(ends_[1]);
    ends_[1] = -1;
    std::string text(1 << 16, '\0');
    std::size_t size = 0;
    for (ssize_t got = 1; got > 0; size += static_cast<std::size_t>(got > 0 ? got : 0))
      got = ::read(ends_[0], text.data() + size, text.size() - size);
    text.resize(size);
    return text;
  }

 private:
  std::array<int, 2> ends_{-1, -1};
};

TEST_CASE("a pipe gets plain lines and no status", "[observe]") {
  Pipe pipe;
  {
    Console console(detect_console(pipe.writing()));
    CHECK_FALSE(console.options().terminal);
    CHECK_FALSE(console.options().colour);
    console.status("1/2");
    console.line("a");
    console.line("b");
  }
  CHECK(pipe.read_all() == "a\nb\n");
}

TEST_CASE("on a terminal the status stays below the lines and goes at the end", "[observe]") {
  Pipe pipe;
  {
    Console console({pipe.writing(), true, true});
    console.status("1/2");
    console.line("a");
    console.status("2/2");
  }
  const std::string erase = "\r\x1b[K";
  CHECK(pipe.read_all() == erase + "1/2" + erase + "a\n1/2" + erase + "2/2" + erase);
}

TEST_CASE("a status wider than the terminal is cut", "[observe]") {
  Pipe pipe;
  {
    Console console({pipe.writing(), true, false});
    console.status(std::string(500, 'x'));
  }
  const auto text = pipe.read_all();
  CHECK(std::count(text.begin(), text.end(), 'x') == 79);
}

TEST_CASE("lines of several threads never mix", "[observe]") {
  Pipe pipe;
  {
    Console console({pipe.writing(), true, false});
    std::vector<std::jthread> threads;
    for (const char letter : {'a', 'b', 'c'})
      threads.emplace_back([&console, letter] {
        for (int i = 0; i < 50; ++i) {
          console.line(std::string(40, letter));
          console.status("s");
        }
      });
  }
  const auto text = pipe.read_all();
  for (const char letter : {'a', 'b', 'c'}) {
    std::size_t count = 0;
    std::string line(40, letter);
    line += "\n";
    for (auto at = text.find(line); at != std::string::npos; at = text.find(line, at + 1)) ++count;
    CHECK(count == 50);
  }
}

TEST_CASE("steps are lines everywhere and a bar on terminals", "[observe]") {
  for (const bool terminal : {false, true}) {
    Pipe pipe;
    {
      Console console({pipe.writing(), terminal, false});
      StepReporter reporter(console, Logger::create(&console, {.node_name = "node 0"}).value(),
                            {4, 0});
      StepMetrics metrics;
      metrics.step = 1;
      metrics.step_ms = 1000;
      reporter.report(metrics);
      metrics.step = 2;
      metrics.skipped = "loss is not finite (samples s1)";
      reporter.report(metrics);
      reporter.finish();
    }
    const auto text = pipe.read_all();
    CHECK(text.find("[node 0] step 1/4  loss") != std::string::npos);
    CHECK(text.find("warning: step 2/4  skipped: loss is not finite (samples s1)") !=
          std::string::npos);
    CHECK((text.find("2/4  1.00 s/step  2 s left") != std::string::npos) == terminal);
    CHECK((text.find("  eta 3 s\n") != std::string::npos) != terminal);  // No room there.
  }
}

TEST_CASE("where tokens decide, the bar tells how many steps that will be", "[observe]") {
  Pipe pipe;
  {
    Console console({pipe.writing(), true, false});
    StepReporter reporter(console, Logger::create(&console, {.node_name = "node 0"}).value(),
                          {0, 1000});
    StepMetrics metrics;
    metrics.step_ms = 1000;
    for (const TokenCount tokens : {0, 200, 200, 700}) {
      ++metrics.step;
      metrics.tokens = tokens;
      reporter.report(metrics);
    }
  }
  const auto text = pipe.read_all();
  CHECK(text.find("1/") == std::string::npos);  // No token yet.
  CHECK(text.find("2/10  1.00 s/step  8 s left") != std::string::npos);
  CHECK(text.find("3/8  1.00 s/step  5 s left") != std::string::npos);
  CHECK(text.find("4/4  1.00 s/step  0 s left") != std::string::npos);
  CHECK(text.find("[node 0] step 2  loss") != std::string::npos);
}

}  // namespace
}  // namespace troupe::observe
