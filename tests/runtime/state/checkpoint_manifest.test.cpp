#include "runtime/state/checkpoint_manifest.hpp"

#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>
#include <functional>
#include <nlohmann/json.hpp>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "tests/runtime/state/example_checkpoint.hpp"
#include "tests/support/many_tries.hpp"

using Catch::Matchers::ContainsSubstring;
using Json = nlohmann::json;

namespace troupe::state {
namespace {

TEST_CASE("a manifest is read back as it was written", "[state]") {
  for (const Dtype dtype : {Dtype::fp32, Dtype::bf16, Dtype::fp64}) {
    const auto manifest = example_manifest(4, dtype);
    const auto read = parse_manifest(manifest_json(manifest));
    REQUIRE(read.ok());
    CHECK(read.value() == manifest);
    CHECK(read.value().bytes() == 30);
  }
}

TEST_CASE("a manifest of an older build, which lacks what came later, is read", "[state]") {
  auto manifest = example_manifest();
  Json json = Json::parse(manifest_json(manifest));
  json["progress"].erase("learned");
  manifest.progress.learned = {};
  json["progress"]["data"].erase("epochs");
  manifest.progress.data.epochs.clear();
  const auto read = parse_manifest(json.dump());
  REQUIRE(read.ok());
  CHECK(read.value() == manifest);
}

/// The example without its moments.
CheckpointManifest incomplete_example() {
  CheckpointManifest manifest = example_manifest();
  const auto moments = std::ranges::find(manifest.shards, StateKind::moments,
                                         [](const CheckpointShard& x) { return x.key.kind; });
  manifest.missing = {{moments->key, "node 1 (host, pid 71)"}};
  manifest.shards.erase(moments);
  return manifest;
}

TEST_CASE("a manifest that lists what is missing is read back, and covers it all", "[state]") {
  const CheckpointManifest manifest = incomplete_example();
  const auto read = parse_manifest(manifest_json(manifest));
  REQUIRE(read.ok());
  CHECK(read.value() == manifest);
  CHECK_FALSE(Json::parse(manifest_json(example_manifest())).contains("missing"));
  const auto why = [&](const std::function<void(Json&)>& break_it) {
    Json json = Json::parse(manifest_json(manifest));
    break_it(json);
    const auto broken = parse_manifest(json.dump());
    REQUIRE_FALSE(broken.ok());
    return broken.error().message;
  };
  CHECK_THAT(why([](Json& x) { x["missing"].erase(0); }),
             ContainsSubstring("the moments of 'llm.a' is not whole"));
  CHECK_THAT(why([](Json& x) { x["missing"].push_back(x["missing"][0]); }),
             ContainsSubstring("overlap"));
  CHECK_THAT(why([](Json& x) { x["missing"][0]["parameter"] = 2; }),
             ContainsSubstring("not listed"));
  CHECK_THAT(why([](Json& x) { x["missing"][0].erase("held_by"); }), ContainsSubstring("held_by"));
}

TEST_CASE("a tensor is called after its parameter, its kind and its box", "[state]") {
  const SavedParameter parameter{"llm.a", {4, 6}, true};
  const ParameterId id{0};
  CHECK(tensor_name(parameter, {id, StateKind::value, {{0, 4}, {0, 6}}}) == "llm.a");
  CHECK(tensor_name(parameter, {id, StateKind::moments, {{0, 4}, {0, 6}}}) == "llm.a@moments");
  CHECK(tensor_name(parameter, {id, StateKind::master, {{1, 2}, {0, 6}}}) ==
        "llm.a@master[1:2,0:6]");
}

TEST_CASE("what is wrong with a manifest is named", "[state][errors]") {
  const auto why = [](const std::function<void(Json&)>& break_it) {
    Json json = Json::parse(manifest_json(example_manifest()));
    break_it(json);
    const auto read = parse_manifest(json.dump());
    REQUIRE_FALSE(read.ok());
    CHECK(read.error().code == Errc::bad_data);
    return read.error().message;
  };
  CHECK_THAT(why([](Json& x) { x["format"] = 2; }), ContainsSubstring("format 2 is newer"));
  CHECK_THAT(why([](Json& x) { x.erase("files"); }), ContainsSubstring("files"));
  CHECK_THAT(why([](Json& x) { x["dtype"] = "fp7"; }), ContainsSubstring("'fp7' is unknown"));
  CHECK_THAT(why([](Json& x) { x["progress"]["step"] = 0; }), ContainsSubstring("'step'"));
  CHECK_THAT(why([](Json& x) { x["progress"]["tokens"] = 1.5; }), ContainsSubstring("'tokens'"));
  CHECK_THAT(why([](Json& x) { x["files"][0]["name"] = "../../etc/passwd"; }),
             ContainsSubstring("called '../../etc/passwd'"));
  CHECK_THAT(why([](Json& x) { x["files"][1]["name"] = x["files"][0]["name"]; }),
             ContainsSubstring("listed twice"));
  CHECK_THAT(why([](Json& x) {
               x["parameters"][0]["shape"] = {1 << 30, 1 << 30};
             }),
             ContainsSubstring("impossible shape"));
  CHECK_THAT(why([](Json& x) { x["parameters"][1]["name"] = "llm.a"; }),
             ContainsSubstring("'llm.a' is listed twice"));
  CHECK_THAT(why([](Json& x) { x["shards"][0]["file"] = 2; }), ContainsSubstring("not listed"));
  CHECK_THAT(why([](Json& x) {
               x["shards"][0]["box"] = {{0, 5}, {0, 2}};
             }),
             ContainsSubstring("does not lie within it"));
  CHECK_THAT(why([](Json& x) {
               x["shards"][0]["box"] = {{0, 4}, {0, 3}};
             }),
             ContainsSubstring("overlap"));
  CHECK_THAT(why([](Json& x) { x["shards"].erase(0); }),
             ContainsSubstring("the value of 'llm.a' is not whole"));
  CHECK_THAT(why([](Json& x) { x["shards"].erase(2); }),
             ContainsSubstring("the moments of 'llm.a' is not whole"));
  CHECK_THAT(why([](Json& x) { x["shards"][3]["kind"] = "moments"; }),
             ContainsSubstring("of 'vision.b'"));
  CHECK_THAT(why([](Json& x) { x["progress"]["deals"][0]["shares"][0][0] = 0; }),
             ContainsSubstring("takes no time"));
  const auto why_epochs = [&](const std::vector<Json>& epochs) {
    return why([&](Json& x) { x["progress"]["data"]["epochs"] = epochs; });
  };
  const auto stretch = [](std::int64_t first, const std::vector<std::int64_t>& records) {
    return Json{{"first", first}, {"records", records}};
  };
  CHECK_THAT(why_epochs({stretch(1, {60})}), ContainsSubstring("out of order"));
  CHECK_THAT(why_epochs({stretch(0, {50}), stretch(0, {60})}), ContainsSubstring("out of order"));
  CHECK_THAT(why_epochs({stretch(0, {0})}), ContainsSubstring("have no records"));
  CHECK_THAT(why_epochs({stretch(0, {40, 10}), stretch(1, {30, 30})}),
             ContainsSubstring("becomes smaller"));
  CHECK_THAT(why_epochs({stretch(0, {50, 11})}), ContainsSubstring("more records than there are"));
  CHECK_THAT(why_epochs({stretch(0, {50})}), ContainsSubstring("do not have all records"));
  const auto why_learned = [&](const char* key, const Json& value) {
    return why([&](Json& x) { x["progress"]["learned"][key] = value; });
  };
  const auto row = [](std::int64_t stage, double factor, std::int64_t measurements) {
    return Json::array({Json::array({stage, "llm", 64, factor, measurements})});
  };
  CHECK_THAT(why_learned("samples", row(2, 1, 1)), ContainsSubstring("stage that is not listed"));
  CHECK_THAT(why_learned("samples", row(0, 0, 1)),
             ContainsSubstring("'factor' is no number above"));
  CHECK_THAT(why_learned("samples", row(0, 1, 0)), ContainsSubstring("'measurements'"));
  CHECK_THAT(why_learned("benefit", -1), ContainsSubstring("'benefit'"));
  CHECK_THAT(why_learned("stages", 3), ContainsSubstring("'stages' is no list"));
  CHECK_THAT(why_learned("parts", std::vector<int>(70'000)), ContainsSubstring("too much"));
  CHECK_FALSE(parse_manifest("").ok());
  CHECK_FALSE(parse_manifest("[1, 2]").ok());
}

TEST_CASE("mutated manifests give a manifest or an error, never more", "[state][property]") {
  const std::string whole = manifest_json(example_manifest());
  const std::vector<std::string> words{"-1", "1e999", "18446744073709551615", "null", "[",     "]]",
                                       "{",  "\"",    "9007199254740993",     "true", "[[[[[["};
  std::mt19937_64 random(11);
  const auto below = [&](std::size_t end) { return random() % end; };
  int accepted = 0;
  const std::int64_t memory_before = testing::peak_memory_mib();
  for (std::uint32_t rounds = testing::tries(20'000); rounds > 0; --rounds) {
    std::string text = whole;
    for (std::size_t change = 1 + below(4); change > 0; --change) {
      const std::size_t at = below(text.size());
      switch (below(4)) {
        case 0: text[at] = static_cast<char>(below(256)); break;
        case 1: text.erase(at, 1 + below(30)); break;
        case 2: text.insert(at, words[below(words.size())]); break;
        default: text.insert(at, text.substr(below(text.size()), below(200))); break;
      }
      if (text.empty()) text = "x";
    }
    const auto read = parse_manifest(text);
    if (!read.ok()) {
      CHECK(read.error().code == Errc::bad_data);
      continue;
    }
    ++accepted;
    for (const auto& shard : read.value().shards) {
      CHECK(shard.key.parameter.index() < read.value().parameters.size());
      CHECK(static_cast<std::size_t>(shard.file) < read.value().files.size());
    }
  }
  CHECK(testing::peak_memory_mib() - memory_before < testing::kMemoryOfTriesMax);
  CHECK(accepted > 0);  // A changed name or number is no fault.
}

}  // namespace
}  // namespace troupe::state
