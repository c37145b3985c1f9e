#include "runtime/data/samples/data_summary.hpp"

#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>

#include "golden.hpp"
#include "temp_folder.hpp"

using Catch::Matchers::ContainsSubstring;

namespace troupe::data {
namespace {

TEST_CASE("statistics_of takes percentiles by nearest rank", "[data]") {
  // Sorted 1 2 3 4 5: p50 is the ceil(2.5) = 3rd, p95 the ceil(4.75) = 5th.
  CHECK(statistics_of({5, 3, 1, 2, 4}) == LengthStatistics{5, 15, 1, 3, 5, 5});
  CHECK(statistics_of({7}) == LengthStatistics{1, 7, 7, 7, 7, 7});
  CHECK(statistics_of({}) == LengthStatistics{});
  std::vector<std::int64_t> hundred;
  for (int i = 1; i <= 100; ++i) hundred.push_back(i);
  CHECK(statistics_of(hundred) == LengthStatistics{100, 5050, 1, 50, 95, 100});
}

/// A text, a picture, a clip, a missing picture and an empty answer.
struct Fixture {
  Fixture() {
    nlohmann::json records;
    const auto add = [&](const char* media, const char* file, const char* user,
                         const char* assistant) {
      nlohmann::json record = {{"id", "s" + std::to_string(records.size())}};
      if (*file != '\0') record[media] = file;
      record["conversations"] = {{{"from", "human"}, {"value", user}},
                                 {{"from", "gpt"}, {"value", assistant}}};
      records.push_back(record);
    };
    add("", "", "q", "a");
    add("image", "rgb.jpg", "<image>", "abc");
    add("audio", "mono16k.wav", "<audio>", "ab");
    add("image", "none.jpg", "<image>", "a");
    add("", "", "q", "");
    options.sources = {{folder.write("samples.json", records.dump()), golden_path(""), "llava"}};
  }
  DataSummary summary(int threads) const {
    auto dataset = Dataset::open(options);
    REQUIRE(dataset.ok());
    return summarize(dataset.value(), options, threads);
  }

  TempFolder folder;
  DataOptions options;
};

TEST_CASE("summarize measures good samples and lists bad ones", "[data]") {
  const DataSummary summary = Fixture().summary(2);
  CHECK(summary.samples == 5);
  CHECK(summary.with_images == 2);
  CHECK(summary.with_audio == 1);
  CHECK(summary.text_only == 2);
  // Text: begin user q end assistant a end = 7. Picture, 6 rows: begin user [6] end assistant a b c
  // end = 14. Clip, 13 rows: begin user [13] end assistant a b end = 20.
  CHECK(summary.llm_tokens == LengthStatistics{3, 41, 7, 14, 20, 20});
  CHECK(summary.trained_tokens == LengthStatistics{3, 2 + 4 + 3, 2, 3, 4, 4});
  CHECK(summary.image_patches == LengthStatistics{1, 24, 24, 24, 24, 24});
  CHECK(summary.audio_frames == LengthStatistics{1, 25, 25, 25, 25, 25});
  REQUIRE(summary.bad.size() == 2);
  CHECK(summary.bad[0].id == "s3");
  CHECK(summary.bad[1].kind == BadKind::no_trained_token);
  CHECK(summary.bad_fraction() == 0.4);
}

TEST_CASE("summarize does not depend on the number of threads", "[data][property]") {
  const Fixture fixture;
  CHECK(fixture.summary(1) == fixture.summary(7));
}

TEST_CASE("summarize reports its progress up to the end", "[data]") {
  const Fixture fixture;
  auto dataset = Dataset::open(fixture.options);
  REQUIRE(dataset.ok());
  std::int64_t last = 0;
  summarize(dataset.value(), fixture.options, 2, [&](std::int64_t done) { last = done; });
  CHECK(last == 5);
}

TEST_CASE("to_text tells lengths, dropped samples and their reasons", "[data]") {
  DataSummary summary = Fixture().summary(1);
  const std::string text = to_text(summary);
  CHECK_THAT(text, ContainsSubstring("5 samples  40% with images  20% with audio  40% text only"));
  CHECK_THAT(text, ContainsSubstring("llm tokens        p50 14  p95 20  max 20\n"));
  CHECK_THAT(text, ContainsSubstring("(22% of tokens carry loss)"));  // 9 of 41.
  CHECK_THAT(text, ContainsSubstring("dropped 2 (40%): 1 no trained token, 1 missing file\n"
                                     "  sample s3 (samples.json:1): none.jpg: "));
  CHECK_THAT(to_text(summary, 1), ContainsSubstring("  and 1 more\n"));
  summary.bad.clear();
  summary.llm_tokens.largest = 1234567;
  CHECK_THAT(to_text(summary), ContainsSubstring("max 1,234,567"));
  CHECK_THAT(to_text(summary), ContainsSubstring("dropped none"));
}

TEST_CASE("special tokens that are written out are counted and named", "[data]") {
  TempFolder folder;
  DataOptions options;
  options.sources = {{folder.write("s.json", R"([
      {"id": "a", "conversations": [{"from": "human", "value": "a <| b |> <| x"},
                                    {"from": "gpt", "value": "x"}]},
      {"id": "b", "conversations": [{"from": "human", "value": "<|im_start|>user"},
                                    {"from": "gpt", "value": "x"}]},
      {"id": "c", "conversations": [{"from": "human", "value": "q"},
                                    {"from": "gpt", "value": "x<|end|>"}]}])"),
                      "", "llava"}};
  const auto dataset = Dataset::open(options);
  REQUIRE(dataset.ok());
  const auto summary = summarize(dataset.value(), options, 1);
  CHECK(summary.bad.empty());
  CHECK_THAT(to_text(summary),
             ContainsSubstring("special tokens written out in 2 samples, first: sample b "
                               "(s.json:4) has '<|im_start|>'; they are taken as plain text"));
  CHECK(nlohmann::json::parse(to_json(summary))["with_special_names"] == 2);
  CHECK(to_text(Fixture().summary(1)).find("special tokens") == std::string::npos);
}

TEST_CASE("to_json holds the same numbers", "[data]") {
  const auto object = nlohmann::json::parse(to_json(Fixture().summary(1)));
  CHECK(object["samples"] == 5);
  CHECK(object["llm_tokens"]["p95"] == 20);
  CHECK(object["bad"].size() == 2);
  CHECK(object["bad"][0]["file"] == "none.jpg");
}

}  // namespace
}  // namespace troupe::data
