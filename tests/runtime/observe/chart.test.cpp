#include "runtime/observe/chart.hpp"

#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>
#include <cmath>
#include <regex>

#include <nlohmann/json.hpp>

namespace troupe::observe {
namespace {

using Catch::Matchers::ContainsSubstring;
using Json = nlohmann::json;

// What the script of a figure reads.
Json data_of(const std::string& figure) {
  const auto begin = figure.find("json\">") + 6;
  return Json::parse(figure.substr(begin, figure.find("</script>") - begin));
}

// Whether a value is among those drawn; the figure's words alone would say it as well.
bool is_drawn(const std::string& figure, double value) {
  const auto values = data_of(figure)["series"][0]["y"];
  return std::find(values.begin(), values.end(), value) != values.end();
}

Chart long_chart(int steps, double (*value)(int step)) {
  Chart chart{"Loss", "", {}, {{"loss", {}}}};
  for (int i = 1; i <= steps; ++i) {
    chart.x.push_back(i);
    chart.series[0].y.push_back(value(i));
  }
  return chart;
}

int count_of(const std::string& text, const std::string& part) {
  int count = 0;
  for (auto at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++count;
  return count;
}

TEST_CASE("a chart keeps the peak of many points", "[observe]") {
  Chart chart{"Loss", "", {}, {{"loss", {}}}, true};
  for (int i = 0; i < 20000; ++i) {
    chart.x.push_back(i + 1);
    chart.series[0].y.push_back(i == 12345 ? 77.25 : 1);
  }
  const auto figure = chart_figure(chart);
  CHECK(is_drawn(figure, 77.25));
  CHECK(figure.size() < 100'000);
}

TEST_CASE("marks stand at their steps, with a key for each kind", "[observe]") {
  // Steps 1 to 101: step 26 is a quarter of the way.
  auto chart = long_chart(101, [](int) { return 1.0; });
  chart.marks = {{26, "checkpoint", "m-checkpoint"},
                 {51, "checkpoint", "m-checkpoint"},
                 {51, "resumed", "m-resumed"},
                 {500, "checkpoint", "m-checkpoint"}};
  const auto figure = chart_figure(chart);
  CHECK_THAT(figure, ContainsSubstring("class=\"mark m-checkpoint\" x1=\"250.0\"") &&
                         ContainsSubstring("class=\"mark m-resumed\" x1=\"500.0\""));
  CHECK(count_of(figure, "<title>checkpoint") == 2);  // Step 500 is not on the chart.
  CHECK(count_of(figure, "</svg>checkpoint") == 1);
  CHECK(count_of(figure, "</svg>resumed") == 1);
}

TEST_CASE("as many marks are drawn as can be told apart", "[observe]") {
  auto chart = long_chart(20'000, [](int) { return 1.0; });
  for (int step = 1; step <= 20'000; ++step)
    chart.marks.push_back({double(step), "checkpoint", "m-checkpoint"});
  CHECK(count_of(chart_figure(chart), "<title>checkpoint") <= 201);
}

TEST_CASE("a chart without a number says so, and gaps break its line", "[observe]") {
  Chart chart{"Loss <a>", "ms", {1, 2, 3, 4, 5}, {{"loss", {NAN, NAN, NAN, NAN, NAN}}}, true};
  CHECK_THAT(chart_figure(chart),
             ContainsSubstring("No values") && ContainsSubstring("Loss &lt;a&gt;"));
  chart.series[0].y = {1, 2, NAN, 2, 1};
  const auto figure = chart_figure(chart);
  const auto path = figure.substr(figure.find("class=\"curve s0\""));
  const auto line = path.substr(0, path.find("/>"));
  CHECK(std::count(line.begin(), line.end(), 'M') == 2);
}

TEST_CASE("a peak beside a gap is kept", "[observe]") {
  const auto chart = long_chart(20'000, [](int step) {
    return step % 3 == 0 ? NAN : step == 12'346 ? 77.25 : step == 12'350 ? -9.5 : 1.0;
  });
  CHECK(is_drawn(chart_figure(chart), 77.25));
  CHECK(is_drawn(chart_figure(chart), -9.5));
}

TEST_CASE("a figure of any number of steps stays small", "[observe]") {
  auto chart = long_chart(100'000, [](int step) { return std::sin(step) + 1.0 / step + 2; });
  chart.large = chart.logarithmic = true;
  for (const auto* name : {"b", "c"}) chart.series.push_back({name, chart.series[0].y});
  CHECK(chart_figure(chart).size() < 200'000);
  const auto steps = data_of(chart_figure(chart))["x"];
  CHECK(steps.size() <= 1602);
  CHECK((steps.front() == 1 && steps.back() == 100'000));
  CHECK(stacked_figure(chart).size() < 50'000);
}

TEST_CASE("a logarithmic axis is there on demand, without what is not above zero", "[observe]") {
  Chart chart{"Loss", "", {1, 2, 3, 4}, {{"loss", {100, 10, 1, 0}}}};
  CHECK(count_of(chart_figure(chart), "<div class=\"plot") == 1);
  chart.logarithmic = true;
  const auto figure = chart_figure(chart);
  REQUIRE(count_of(figure, "<div class=\"plot") == 2);
  CHECK_THAT(figure, ContainsSubstring("log scale") && ContainsSubstring("type=\"checkbox\""));
  // By hand: a decade each, so 10 lies in the middle of 100 and 1, and 0 nowhere.
  const auto log = figure.substr(figure.find("plot log"));
  std::smatch points;
  REQUIRE(std::regex_search(
      log, points,
      std::regex("class=\"curve s0\" d=\"M0.0 ([0-9.]+)L333.3 ([0-9.]+)L666.7 ([0-9.]+)\"")));
  const double top = std::stod(points[1]), middle = std::stod(points[2]),
               ground = std::stod(points[3]);
  CHECK(std::abs(middle - (top + ground) / 2) <= 0.11);
  CHECK(top < middle);
  // Nothing above zero, nothing to switch to.
  chart.series[0].y = {0, -1, 0, -2};
  CHECK(count_of(chart_figure(chart), "<div class=\"plot") == 1);
}

TEST_CASE("values at some steps alone are joined and marked", "[observe]") {
  Chart chart{"Loss", "", {}, {{"held out", {}}}};
  for (int i = 0; i < 90; ++i) {
    chart.x.push_back(i);
    chart.series[0].y.push_back(i % 10 == 0 ? i : NAN);
  }
  const auto pen_strokes = [&] {
    const auto figure = chart_figure(chart);
    const auto path = figure.substr(figure.find("class=\"curve s0\""));
    return count_of(path.substr(0, path.find("/>")), "M");
  };
  CHECK(pen_strokes() == 9);
  chart.series[0].sparse = true;
  CHECK(pen_strokes() == 1);
  CHECK(count_of(chart_figure(chart), "h0") == 9);
}

TEST_CASE("stacked areas stand on one another", "[observe]") {
  // By hand: of 0 to 10.5 (5 % room), 6 lies at 1000 x 4.5 / 10.5 = 428.6, 10 at 47.6.
  const Chart chart{"Time",
                    "ms",
                    {1, 2},
                    {{"a", {6, 6}, SeriesLook::line, false, "k-forward"},
                     {"b", {4, 4}, SeriesLook::line, false, "k-wait"}}};
  const auto figure = stacked_figure(chart);
  CHECK_THAT(figure,
             ContainsSubstring("class=\"area k-forward\" d=\"M0.0 428.6L1000.0 428.6L1000.0 1000.0"
                               "L0.0 1000.0z\"") &&
                 ContainsSubstring("class=\"area k-wait\" d=\"M0.0 47.6L1000.0 47.6L1000.0 428.6"
                                   "L0.0 428.6z\""));
  CHECK(data_of(figure)["series"][1]["y"] == Json{4, 4});
}

TEST_CASE("stacked areas of many steps are means", "[observe]") {
  auto chart = long_chart(24'000, [](int step) { return step % 2 == 0 ? 0.0 : 8.0; });
  chart.series[0].paint = "k-forward";
  const auto values = data_of(stacked_figure(chart))["series"][0]["y"];
  REQUIRE(values.size() == 240);
  CHECK(std::all_of(values.begin(), values.end(), [](const auto& y) { return y == 4; }));
}

}  // namespace
}  // namespace troupe::observe
