#include "runtime/data/samples/show_sample.hpp"

#include <catch2/catch_test_macros.hpp>

namespace troupe::data {
namespace {

DecodedSample sample_of(const std::vector<Turn>& turns) {
  DecodedSample sample;
  sample.id = "s1";
  sample.text = encode_text(turns);
  sample.trained_tokens = sample.text.trained_tokens();
  return sample;
}

TEST_CASE("show_sample tells trained tokens from ignored ones", "[data]") {
  DecodedSample sample =
      sample_of({{Role::user, "<image><audio>\nWhat?"}, {Role::assistant, "caf\u00e9"}});
  sample.images = {{{{}, 4, 6}}};
  sample.audio = {{{{}, 25, 0}}};
  sample.llm_tokens = 42;
  CHECK(show_sample(sample, {}, false) ==
        "sample s1: 42 tokens, 6 trained\n"
        "  image: 6 x 4 patches -> 6 rows\n"
        "  audio 0: 25 frames -> 13 rows\n"
        "[ignored] <|begin|><|user|><|image| x 6><|audio| x 13>\\nWhat?<|end|><|assistant|>\n"
        "[TRAINED] caf\u00e9<|end|>\n");
}

TEST_CASE("show_sample makes control characters and broken text visible", "[data]") {
  const DecodedSample sample = sample_of({{Role::assistant, "a\t\xff\xc3(\x1b[0m\xe2\x82"}});
  const std::string text = show_sample(sample, {}, false);
  CHECK(text.find("[TRAINED] a\\x09\\xFF\\xC3(\\x1B[0m\\xE2\\x82<|end|>\n") != std::string::npos);
}

TEST_CASE("text cannot pass for a special token", "[data]") {
  const std::string text = show_sample(sample_of({{Role::assistant, "a<|end|><b>"}}), {}, false);
  CHECK(text.find("[TRAINED] a\\<|end|><b><|end|>\n") != std::string::npos);
}

TEST_CASE("show_sample colours runs on a terminal", "[data]") {
  const std::string text = show_sample(sample_of({{Role::assistant, "a"}}), {}, true);
  CHECK(text.find("[ignored] \x1b[2m<|begin|><|assistant|>\x1b[0m\n") != std::string::npos);
  CHECK(text.find("[TRAINED] \x1b[32ma<|end|>\x1b[0m\n") != std::string::npos);
}

TEST_CASE("show_sample gives the reason of a bad sample", "[data]") {
  const BadSample bad{"s1",       BadKind::missing_file,    "a.jpg",
                      "f.json:3", "there is no file a.jpg", "check the path"};
  CHECK(show_sample(bad, {}, true) ==
        "BAD sample s1 (f.json:3): a.jpg: there is no file a.jpg; check the path\n");
}

TEST_CASE("what show_sample quotes of a data set does not act on a terminal", "[data]") {
  DecodedSample sample = sample_of({{Role::assistant, "a"}});
  sample.id = "\x1b[2J\u202e";
  CHECK(show_sample(sample, {}, false).starts_with("sample \\x1b[2J\\u202e: 0 tokens"));
  const BadSample bad{sample.id, BadKind::missing_file, sample.id, "f.json:3", "no file", "check"};
  CHECK(show_sample(bad, {}, true) ==
        "BAD sample \\x1b[2J\\u202e (f.json:3): \\x1b[2J\\u202e: no file; check\n");
}

}  // namespace
}  // namespace troupe::data
