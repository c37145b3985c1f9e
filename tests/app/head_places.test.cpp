#include "app/head_places.hpp"

#include <atomic>
#include <catch2/catch_test_macros.hpp>
#include <cstddef>
#include <filesystem>
#include <fstream>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "app/control_file.hpp"
#include "engine/profiling/this_machine.hpp"
#include "tests/runtime/job/job_files.hpp"

namespace troupe::app {
namespace {

/// A node that joined at 127.0.0.1:1000 a job that listens at any free port, and has a key for all
/// addresses but those of `locked`.
struct Node {
  JobFolder folder;
  door::JobKey own = door::JobKey::random();
  std::set<std::string> locked;
  HeadClues clues{folder.path() / "run",
                  {},
                  "127.0.0.1:1000",
                  "127.0.0.1:0",
                  [this](const HostPort& address) -> Result<actors::KeySource> {
                    if (locked.contains(address.text()))
                      return Error{Errc::invalid_argument, "no key", address.text(), {}};
                    return actors::KeySource{[this]() -> Result<door::JobKey> { return own; }};
                  }};

  void write_job(const std::string& listen) {
    clues.job_file =
        folder.write("job.toml", kSmallJob + "[cluster]\nlisten = \"" + listen + "\"\n");
  }

  void show_control(const std::string& host, const door::JobKey& key) const {
    std::filesystem::create_directories(clues.run);
    REQUIRE(write_control(clues.run, {host, "127.0.0.1:4000", "far:4000", key}).ok());
  }

  std::vector<std::string> addresses(const std::string& found_last = "") const {
    std::vector<std::string> texts;
    for (const HeadPlace& place : head_places(clues, found_last))
      texts.push_back(place.address.text());
    return texts;
  }
};

using Texts = std::vector<std::string>;

TEST_CASE("a head is looked for where the run folder says, then the job file, then where it was",
          "[app]") {
  Node node;
  CHECK(node.addresses() == Texts{"127.0.0.1:1000"});
  node.clues.listen = "127.0.0.3:3000";
  CHECK(node.addresses() == Texts{"127.0.0.1:1000", "127.0.0.3:3000"});
  node.write_job("127.0.0.2:2000");
  node.show_control("another machine", door::JobKey::random());
  CHECK(node.addresses() ==
        Texts{"far:4000", "127.0.0.2:2000", "127.0.0.1:1000", "127.0.0.3:3000"});
  node.show_control(engine::host_name(), door::JobKey::random());
  CHECK(node.addresses().front() == "127.0.0.1:4000");
}

TEST_CASE("a head takes away its own way in, and leaves that of another one", "[app]") {
  const JobFolder folder;
  const ControlFile own{"here", "127.0.0.1:1", "here:1", door::JobKey::random(), 7};
  ControlFile other = own;
  for (const auto& [host, process] : {std::pair{"there", 7}, {"here", 8}}) {
    other.host = host;
    other.process = process;
    REQUIRE(write_control(folder.path(), other).ok());
    remove_control(folder.path(), own);
    CHECK(read_control(folder.path()).ok());
  }
  REQUIRE(write_control(folder.path(), own).ok());
  remove_control(folder.path(), own);
  CHECK_FALSE(read_control(folder.path()).ok());
}

TEST_CASE("the way in is whole whenever it is there", "[app]") {
  const JobFolder folder;
  const ControlFile own{"here", "127.0.0.1:1", "here:1", door::JobKey::random(), 7};
  std::ofstream(folder.path() / "control.new") << "of a head that was killed meanwhile";
  std::atomic<bool> is_written = false;
  std::atomic<std::size_t> seen = 0;
  std::jthread writer([&] {
    // As often, and at most until somebody has looked.
    for (int i = 0; i < 2000 || (seen == 0 && i < 100'000); ++i)
      if (!write_control(folder.path(), own).ok()) break;
    is_written = true;
  });
  while (!is_written) {
    const auto control = read_control(folder.path());
    if (!control.ok() && control.error().code != Errc::not_found) FAIL(control.error().message);
    seen += control.ok() ? 1 : 0;
  }
  CHECK(seen.load() > 0);
  std::vector<std::string> left;
  for (const auto& entry : std::filesystem::directory_iterator(folder.path()))
    if (const auto name = entry.path().filename().string(); name.starts_with("control"))
      left.push_back(name);
  CHECK(left == std::vector<std::string>{"control"});
}

TEST_CASE("the job file is read anew each time a head is looked for", "[app]") {
  Node node;
  node.write_job("127.0.0.1:0");  // Any free port is no address.
  CHECK(node.addresses() == Texts{"127.0.0.1:1000"});
  node.write_job("127.0.0.2:2000");
  CHECK(node.addresses() == Texts{"127.0.0.2:2000", "127.0.0.1:1000"});
  node.clues.job_file = node.folder.write("job.toml", "half a line [");
  CHECK(node.addresses() == Texts{"127.0.0.1:1000"});
}

TEST_CASE("each address is tried once, but where the run folder has a key for it", "[app]") {
  Node node;
  node.clues.listen = "0.0.0.0:1000";  // Of this machine.
  node.write_job("127.0.0.1:1000");
  CHECK(node.addresses() == Texts{"127.0.0.1:1000"});
  node.clues.joined = "127.0.0.1:4000";
  const auto shown = door::JobKey::random();
  node.show_control(engine::host_name(), shown);
  const auto places = head_places(node.clues, "");
  REQUIRE(places.size() == 3);
  CHECK(places[0].address.text() == "127.0.0.1:4000");
  CHECK(places[0].key().value() == shown);
  CHECK(places[2].address.text() == "127.0.0.1:4000");
  CHECK(places[2].key().value() == node.own);
}

TEST_CASE("where nothing opens the door nobody is asked", "[app]") {
  Node node;
  node.write_job("127.0.0.2:2000");
  node.locked = {"127.0.0.1:1000"};
  CHECK(node.addresses() == Texts{"127.0.0.2:2000"});
}

TEST_CASE("who was found last is asked last", "[app]") {
  Node node;
  node.write_job("127.0.0.2:2000");
  node.show_control("another machine", door::JobKey::random());
  CHECK(node.addresses("far:4000") == Texts{"127.0.0.2:2000", "127.0.0.1:1000", "far:4000"});
}

}  // namespace
}  // namespace troupe::app
