#include "runtime/observe/timeline_page.hpp"

#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>

#include "runtime/observe/html_page.hpp"
#include "tests/runtime/observe/example_plan.hpp"
#include "tests/support/scratch_folder.hpp"

namespace troupe::observe {
namespace {

using Catch::Matchers::ContainsSubstring;
using testing::ScratchFolder;

// Two intervals on two of the example's devices, with a link.
std::vector<TraceEvent> example_events() {
  const auto iteration = testing::example_iteration();
  Action send, receive;
  send.kind = ActionKind::send;
  receive.kind = ActionKind::receive;
  send.message = receive.message = MessageId{0};
  auto first = trace_event(iteration, DeviceId{0}, send, 4);
  auto second = trace_event(iteration, DeviceId{1}, receive, 4);
  first.end_ns = 1'500'000;
  second.end_ns = 2'250'000;
  return {first, second};
}

Timeline example_timeline() {
  auto timeline = make_timeline(example_events(), trace_names(testing::example_plan()));
  timeline.title = "Step <7> & \"more\" </script>";
  return timeline;
}

// The JSON inside of the page's data element.
nlohmann::json data_of(const std::string& page) {
  const std::string open = "<script type=\"application/json\">";
  const auto begin = page.find(open) + open.size();
  return nlohmann::json::parse(page.substr(begin, page.find("</script>", begin) - begin));
}

TEST_CASE("a page holds every interval and link of its timeline", "[observe]") {
  const auto timeline = example_timeline();
  const auto data = data_of(timeline_page("A page", {&timeline, 1}));
  CHECK(data["title"] == timeline.title);
  CHECK(data["lanes"].size() == 4);
  CHECK(data["intervals"]["lane"] == nlohmann::json{0, 1});
  CHECK(data["intervals"]["end"] == nlohmann::json{1.5, 2.25});
  // 6 rows x 16 columns x 4 bytes.
  CHECK(data["intervals"]["bytes"] == nlohmann::json{384, 384});
  CHECK(data["kinds"][data["intervals"]["kind"][1].get<std::size_t>()] == "receive");
  CHECK(data["links"] == nlohmann::json{{0, 1}});
}

TEST_CASE("marks are in the picture's data, and in a list with their reasons", "[observe]") {
  auto timeline = example_timeline();
  CHECK(data_of(timeline_page("A page", {&timeline, 1}))["marks"].empty());
  CHECK_THAT(timeline_page("A page", {&timeline, 1}), !ContainsSubstring("<ul class=\"marks\">"));
  timeline.marks = {{-12.5, "lost", "lost: node 2", "<b>it</b> was killed"},
                    {0.5, "joined", "joined: node 3", ""}};
  const auto page = timeline_page("A page", {&timeline, 1});
  const nlohmann::json lost{{"at", -12.5}, {"kind", "lost"}, {"name", "lost: node 2"}};
  const nlohmann::json joined{{"at", 0.5}, {"kind", "joined"}, {"name", "joined: node 3"}};
  CHECK(data_of(page)["marks"] == nlohmann::json::array({lost, joined}));
  CHECK_THAT(page, ContainsSubstring("<b>lost: node 2</b> 12.5 ms before the first action shown: "
                                     "&lt;b&gt;it&lt;/b&gt; was killed"));
  CHECK_THAT(page, ContainsSubstring("<b>joined: node 3</b> 0.5 ms into the step</li>"));
}

TEST_CASE("names cannot break out of the page", "[observe]") {
  const auto timeline = example_timeline();
  const auto page = timeline_page("<script>alert(1)</script>", {&timeline, 1});
  CHECK_THAT(page, ContainsSubstring("&lt;script&gt;alert(1)"));
  CHECK_THAT(page, ContainsSubstring("Step &lt;7&gt; &amp; &quot;more&quot; &lt;/script&gt;"));
  CHECK_THAT(page, !ContainsSubstring("alert(1)</script>"));
}

TEST_CASE("a page asks no server for anything", "[observe]") {
  const auto timeline = example_timeline();
  const auto page = timeline_page("A page", {&timeline, 1});
  for (const auto* text : {"http:", "https:", "src=", "@import", "url(http", "fetch("}) {
    CAPTURE(text);
    CHECK_THAT(page, !ContainsSubstring(text));
  }
}

TEST_CASE("bytes that are no text are replaced", "[observe]") {
  CHECK(html_text("a\xff"
                  "b") ==
        "a\xEF\xBF\xBD"
        "b");
  CHECK(html_text("\x01\x7f") == "\\x01\\x7f");
  CHECK(html_text("a\u202Eb") == "a\\u202eb");  // Would turn what follows around.
  CHECK(html_text("ü & ö") == "ü &amp; ö");
}

TEST_CASE("a timeline file is a page or a trace by its suffix", "[observe]") {
  const ScratchFolder folder;
  const auto names = trace_names(testing::example_plan());
  const auto events = example_events();
  REQUIRE(write_timeline_file(folder / "t.html", "T", events, names).ok());
  std::ifstream page(folder / "t.html");
  const std::string text{std::istreambuf_iterator<char>(page), {}};
  CHECK(data_of(text)["intervals"]["lane"].size() == 2);
  REQUIRE(write_timeline_file(folder / "t.json", "T", events, names).ok());
  std::ifstream trace(folder / "t.json");
  std::size_t slices = 0;
  for (const auto& entry : nlohmann::json::parse(trace)) slices += entry["ph"] == "X" ? 1 : 0;
  CHECK(slices == 2);
}

TEST_CASE("a timeline file of another suffix is refused", "[observe][errors]") {
  const auto written = write_timeline_file("timeline.png", "T", {}, {});
  REQUIRE_FALSE(written.ok());
  CHECK(written.error().code == Errc::invalid_argument);
  CHECK_THAT(written.error().message, ContainsSubstring(".html") && ContainsSubstring("'.png'"));
}

TEST_CASE("a timeline file needs a folder that can be written", "[observe][errors]") {
  for (const auto* path : {"/proc/nowhere/t.html", "/proc/nowhere/t.json"}) {
    const auto written = write_timeline_file(path, "T", {}, {});
    REQUIRE_FALSE(written.ok());
    CHECK(written.error().code == Errc::io_failed);
  }
}

}  // namespace
}  // namespace troupe::observe
