#include "runtime/data/samples/bad_sample.hpp"

#include <catch2/catch_test_macros.hpp>
#include <nlohmann/json.hpp>

namespace troupe::data {
namespace {

const BadSample kBad{"s1",           BadKind::missing_file, "a \"b\".jpg", "samples.json:7",
                     "no such file", "check the path"};

TEST_CASE("a bad sample reads as one line with sample, place, file and reason", "[data]") {
  CHECK(to_string(kBad) == "sample s1 (samples.json:7): a \"b\".jpg: no such file; check the path");
  BadSample text = kBad;
  text.file.clear();
  text.fix.clear();
  CHECK(to_string(text) == "sample s1 (samples.json:7): no such file");
}

TEST_CASE("a bad sample is one JSON object on a line", "[data]") {
  BadSample strange = kBad;
  strange.file = "\xff\n.jpg";  // A file name that is not UTF-8 must not break the line.

  const auto first = nlohmann::json::parse(to_json_line(kBad, 2, 5));
  const auto second = to_json_line(strange, 0, 1);

  CHECK(first["id"] == "s1");
  CHECK(first["kind"] == "missing file");
  CHECK(first["file"] == "a \"b\".jpg");
  CHECK(first["where"] == "samples.json:7");
  CHECK(first["reason"] == "no such file");
  CHECK(first["fix"] == "check the path");
  CHECK(first["epoch"] == 2);
  CHECK(first["position"] == 5);
  CHECK(second.find('\n') == std::string::npos);
  CHECK(nlohmann::json::parse(second)["file"] == "\uFFFD\n.jpg");
}

TEST_CASE("every kind of bad sample has a fix, and a file's own fix comes first",
          "[data][errors]") {
  for (int kind = 0; kind <= static_cast<int>(BadKind::too_long); ++kind) {
    INFO(to_string(static_cast<BadKind>(kind)));
    CHECK_FALSE(fix_of(static_cast<BadKind>(kind)).empty());
  }
  Record record;
  record.id = "s1";
  record.where = "f:1";
  const Error unknown{Errc::bad_data, "not a picture", "", "convert it to JPEG"};
  CHECK(bad_media(record, "a.gif", unknown).fix == "convert it to JPEG");
  const Error damaged{Errc::bad_data, "truncated", "", ""};
  CHECK(bad_media(record, "a.jpg", damaged).fix == fix_of(BadKind::unreadable_media));
  const Error absent{Errc::not_found, "there is no file", "", "check the path"};
  CHECK(bad_media(record, "a.jpg", absent).kind == BadKind::missing_file);
  CHECK(bad_media(record, "a.jpg", damaged).where == "f:1");
}

}  // namespace
}  // namespace troupe::data
