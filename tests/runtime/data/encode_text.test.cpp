#include "runtime/data/reading/encode_text.hpp"

#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators_range.hpp>
#include <random>
#include <string>

namespace troupe::data {
namespace {

using T = ByteTokenizer;
constexpr TokenId kNo = kIgnoreLabel;

TEST_CASE("encode_text applies the template and trains the answer with its end", "[data]") {
  const std::vector<Turn> turns{
      {Role::system, "S"}, {Role::user, "<image>\nq"}, {Role::assistant, "ab"}};
  const EncodedText text = encode_text(turns);

  CHECK(text.tokens == std::vector<TokenId>{T::kBegin, T::kSystem, 'S', T::kEnd, T::kUser,
                                            T::kImage, '\n', 'q', T::kEnd, T::kAssistant, 'a', 'b',
                                            T::kEnd});
  CHECK(text.labels ==
        std::vector<TokenId>{kNo, kNo, kNo, kNo, kNo, kNo, kNo, kNo, kNo, kNo, 'a', 'b', T::kEnd});
  CHECK(text.image_markers == 1);
  CHECK(text.audio_markers == 0);
  CHECK(text.trained_tokens() == 3);
}

TEST_CASE("encode_text trains every answer of a conversation and bytes above 127", "[data]") {
  const std::vector<Turn> turns{{Role::user, "a"},
                                {Role::assistant, "\u00e9"},  // Two bytes: C3 A9.
                                {Role::user, "b"},
                                {Role::assistant, "<audio>x<imag"}};
  const EncodedText text = encode_text(turns);
  CHECK(text.tokens ==
        std::vector<TokenId>{T::kBegin, T::kUser, 'a', T::kEnd, T::kAssistant, 0xC3,      0xA9,
                             T::kEnd,   T::kUser, 'b', T::kEnd, T::kAssistant, T::kAudio, 'x',
                             '<',       'i',      'm', 'a',     'g',           T::kEnd});
  // A placeholder inside an answer is where rows go; nobody predicts it.
  CHECK(text.labels == std::vector<TokenId>{kNo,     kNo, kNo, kNo, kNo, 0xC3,   0xA9,
                                            T::kEnd, kNo, kNo, kNo, kNo, kNo,    'x',
                                            '<',     'i', 'm', 'a', 'g', T::kEnd});
  CHECK(text.audio_markers == 1);
  CHECK(text.image_markers == 0);
}

TEST_CASE("expand_text repeats placeholders and says where rows go", "[data]") {
  const std::vector<Turn> turns{{Role::user, "<audio><image>x<audio>"}, {Role::assistant, "y"}};
  const EncodedText text = encode_text(turns);
  const MarkerRows image_rows{{3}}, audio_rows{{2, 1}};
  auto expanded = expand_text(text, image_rows, audio_rows);

  REQUIRE(expanded.ok());
  // begin user A A I I I x A end assistant y end
  CHECK(expanded.value().tokens ==
        std::vector<TokenId>{T::kBegin, T::kUser, T::kAudio, T::kAudio, T::kImage, T::kImage,
                             T::kImage, 'x', T::kAudio, T::kEnd, T::kAssistant, 'y', T::kEnd});
  CHECK(expanded.value().labels ==
        std::vector<TokenId>{kNo, kNo, kNo, kNo, kNo, kNo, kNo, kNo, kNo, kNo, kNo, 'y', T::kEnd});
  CHECK(expanded.value().image_positions.front() == std::vector<std::int64_t>{4, 5, 6});
  CHECK(expanded.value().audio_positions.front() == std::vector<std::int64_t>{2, 3, 8});
}

TEST_CASE("rows of several encoders of a medium stand behind one another at each marker",
          "[data]") {
  const std::vector<Turn> turns{{Role::user, "<image>x<image>"}, {Role::assistant, "y"}};
  const EncodedText text = encode_text(turns);
  const auto expanded = expand_text(text, {{2, 1}, {1, 3}}, {});
  REQUIRE(expanded.ok());
  // begin user I I J x I J J J end assistant y end
  CHECK((expanded.value().image_positions ==
         std::vector<std::vector<std::int64_t>>{{2, 3, 6}, {4, 7, 8, 9}}));
  CHECK(std::ssize(expanded.value().tokens) == std::ssize(text.tokens) - 2 + 7);
  CHECK(expand_text(text, {{2, 1}, {1}}, {}).error().code == Errc::invalid_argument);
  CHECK(expand_text(text, {{2, 1}, {1, 0}}, {}).error().message == "image marker 1 has 0 rows");
  CHECK(expand_text(text, {}, {}).error().code == Errc::invalid_argument);
}

TEST_CASE("expand_text refuses row counts that do not fit the markers", "[data][errors]") {
  const std::vector<Turn> turns{{Role::user, "<image>"}, {Role::assistant, "y"}};
  const EncodedText text = encode_text(turns);
  const MarkerRows none, one{{1}}, two{{1, 2}}, zero{{0}};
  CHECK(expand_text(text, one, none).ok());
  CHECK(expand_text(text, two, none).error().message ==
        "rows are given for 2 image markers, but the text has 1");
  CHECK(expand_text(text, one, one).error().code == Errc::invalid_argument);
  CHECK(expand_text(text, zero, none).error().message == "image marker 0 has 0 rows");
}

TEST_CASE("rows_per_marker adds up the windows of a clip", "[data]") {
  // Clip 0 has two windows, clip 1 one.
  const std::vector<MediaShape> items{{.output_rows = 1500, .marker = 0},
                                      {.output_rows = 20, .marker = 0},
                                      {.output_rows = 7, .marker = 1}};
  CHECK(rows_per_marker(&items, 2) == std::vector<TokenCount>{1520, 7});
  CHECK(rows_per_marker(nullptr, 0).empty());
}

TEST_CASE("expanded length is text plus rows, and trained tokens stay", "[data][property]") {
  const int seed = GENERATE(range(0, 30));
  std::mt19937 random(static_cast<unsigned>(seed));
  std::vector<Turn> turns;
  const char* const words[] = {"<image>", "<audio>", "a", "<", "<image", "\xC3\xA9", ""};
  for (int turn = 0; turn < 4; ++turn) {
    std::string text;
    for (int word = 0; word < 6; ++word) text += words[random() % 7];
    turns.push_back({turn % 2 == 0 ? Role::user : Role::assistant, text});
  }
  const EncodedText text = encode_text(turns);
  std::vector<TokenCount> image_rows, audio_rows;
  TokenCount rows = 0;
  for (int i = 0; i < text.image_markers; ++i) image_rows.push_back(1 + random() % 9);
  for (int i = 0; i < text.audio_markers; ++i) audio_rows.push_back(1 + random() % 9);
  for (const auto count : image_rows) rows += count;
  for (const auto count : audio_rows) rows += count;

  auto expanded = expand_text(text, {image_rows}, {audio_rows});
  REQUIRE(expanded.ok());
  const auto& value = expanded.value();
  CHECK(std::ssize(value.tokens) ==
        std::ssize(text.tokens) - text.image_markers - text.audio_markers + rows);
  CHECK(value.labels.size() == value.tokens.size());
  CHECK(std::ssize(value.image_positions[0]) + std::ssize(value.audio_positions[0]) == rows);
  for (const auto at : value.image_positions[0])
    CHECK(value.tokens[static_cast<std::size_t>(at)] == T::kImage);
  for (const auto at : value.audio_positions[0])
    CHECK(value.tokens[static_cast<std::size_t>(at)] == T::kAudio);
  TokenCount trained = 0;
  for (std::size_t i = 0; i < value.labels.size(); ++i) {
    if (value.labels[i] == kNo) continue;
    ++trained;
    CHECK(value.labels[i] == value.tokens[i]);
  }
  CHECK(trained == text.trained_tokens());
}

TEST_CASE("ByteTokenizer gives back the text it was given", "[data]") {
  const std::string text = "caf\u00e9 <image> \x01\x7f";
  std::vector<TokenId> ids;
  T::encode(text, ids);
  CHECK(ids.size() == text.size());
  CHECK(T::decode(ids) == text);
  const std::vector<TokenId> special{T::kBegin, T::kSystem, T::kUser, T::kAssistant, T::kEnd,
                                     T::kImage, T::kAudio,  T::kPad,  264,           -1};
  CHECK(T::decode(special) ==
        "<|begin|><|system|><|user|><|assistant|><|end|><|image|><|audio|><|pad|><|id 264|><|id "
        "-1|>");
}

}  // namespace
}  // namespace troupe::data
