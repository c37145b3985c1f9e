#include "runtime/data/bad_sample.hpp"

#include <catch2/catch_test_macros.hpp>
#include <nlohmann/json.hpp>
#include <sstream>

#include "temp_folder.hpp"

namespace troupe::data {
namespace {

const BadSample kBad{"s1", BadKind::missing_file, "a \"b\".jpg", "samples.json:7", "no such file"};

TEST_CASE("a bad sample reads as one line with sample, place, file and reason", "[data]") {
  CHECK(to_string(kBad) == "sample s1 (samples.json:7): a \"b\".jpg: no such file");
  BadSample text = kBad;
  text.file.clear();
  CHECK(to_string(text) == "sample s1 (samples.json:7): no such file");
}

TEST_CASE("BadSampleLog appends one JSON object per line", "[data]") {
  TempFolder folder;
  const auto path = folder.path() / "new/bad_samples.jsonl";
  BadSample strange = kBad;
  strange.file = "\xff.jpg";  // A file name that is not UTF-8 must not break the line.
  {
    auto log = BadSampleLog::open(path);
    REQUIRE(log.ok());
    CHECK(log.value().add(kBad, 2, 5).ok());
    CHECK(log.value().count() == 1);
  }
  auto again = BadSampleLog::open(path);
  REQUIRE(again.ok());
  CHECK(again.value().add(strange, 0, 1).ok());

  std::ifstream file(path);
  std::string first, second;
  std::getline(file, first);
  std::getline(file, second);
  const auto object = nlohmann::json::parse(first);
  CHECK(object["id"] == "s1");
  CHECK(object["kind"] == "missing file");
  CHECK(object["file"] == "a \"b\".jpg");
  CHECK(object["where"] == "samples.json:7");
  CHECK(object["reason"] == "no such file");
  CHECK(object["epoch"] == 2);
  CHECK(object["position"] == 5);
  CHECK(nlohmann::json::parse(second)["file"] == "\uFFFD.jpg");
}

TEST_CASE("BadSampleLog says which file cannot be opened", "[data][errors]") {
  TempFolder folder;
  auto log = BadSampleLog::open(folder.path());  // A folder.
  REQUIRE_FALSE(log.ok());
  CHECK(log.error().code == Errc::io_failed);
  CHECK(log.error().where == folder.path().string());
}

}  // namespace
}  // namespace troupe::data
