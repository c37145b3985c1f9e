#include "runtime/state/safetensors_header.hpp"

#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators_all.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>
#include <nlohmann/json.hpp>
#include <random>
#include <string>
#include <utility>

#include "tests/support/many_tries.hpp"

using Catch::Matchers::ContainsSubstring;

namespace troupe::state {
namespace {

TensorIndex example() {
  TensorIndex index;
  index.metadata = {{"format", "pt"}};
  index.entries = {{"llm.weight", ElementType::f32, {2, 3}, 0, 24},
                   {"llm.bias", ElementType::bf16, {3}, 24, 30},
                   {"mask", ElementType::boolean, {}, 30, 31},
                   {"none", ElementType::i64, {0, 4}, 31, 31}};
  return index;
}

std::string json_of(const TensorIndex& index) {
  return encode_tensor_index(index).substr(kLengthBytes);
}

TEST_CASE("a header is read back as it was written, aligned to 8 bytes", "[state]") {
  const auto bytes = encode_tensor_index(example());
  CHECK(bytes.size() % 8 == 0);
  // The length field is little-endian and counts the padding.
  CHECK(static_cast<unsigned char>(bytes[0]) + 256u * static_cast<unsigned char>(bytes[1]) ==
        bytes.size() - 8);
  const auto parsed = parse_tensor_index(json_of(example()), 31);
  REQUIRE(parsed.ok());
  CHECK(parsed.value() == example());
}

TEST_CASE("tensors may stand in any order in the header", "[state]") {
  const auto parsed = parse_tensor_index(R"({"b":{"dtype":"U8","shape":[2],"data_offsets":[1,3]},)"
                                         R"("a":{"shape":[1],"data_offsets":[0,1],"dtype":"U8"}})",
                                         3);
  REQUIRE(parsed.ok());
  CHECK(parsed.value().entries[0].name == "a");
  CHECK(parsed.value().entries[1].begin == 1);
}

TEST_CASE("a header without tensors describes an empty file", "[state]") {
  CHECK(parse_tensor_index("{}", 0).ok());
  CHECK_FALSE(parse_tensor_index("{}", 1).ok());
}

TEST_CASE("every defect of a header is named", "[state][errors]") {
  const auto one = [](const std::string& description) { return R"({"w":)" + description + "}"; };
  // Header, bytes of data, what the message says.
  const auto [header, bytes, message] = GENERATE_COPY(table<std::string, int, std::string>({
      {"", 0, "not valid JSON"},
      {"{", 0, "not valid JSON"},
      {"[]", 0, "not a JSON object"},
      {"{} x", 0, "not valid JSON"},
      {"{\"\xff\":1}", 0, "not valid JSON"},
      {one("3"), 0, "\"w\" is not described by an object"},
      {one(R"({"shape":[1],"data_offsets":[0,4]})"), 4, "`dtype` is missing"},
      {one(R"({"dtype":"F32","data_offsets":[0,4]})"), 4, "`shape` is missing"},
      {one(R"({"dtype":"F32","shape":[1]})"), 4, "`data_offsets` is missing"},
      {one(R"({"dtype":"F32","shape":[1],"data_offsets":[0,4],"x":1})"), 4, "more keys"},
      {one(R"({"dtype":"F8","shape":[1],"data_offsets":[0,1]})"), 1, "\"F8\" is not one of"},
      {one(R"({"dtype":7,"shape":[1],"data_offsets":[0,1]})"), 1, "type 7 is not one of"},
      {one(R"({"dtype":"F32","shape":4,"data_offsets":[0,4]})"), 4, "`shape` is not a list"},
      {one(R"({"dtype":"F32","shape":[-1],"data_offsets":[0,4]})"), 4, "sizes >= 0"},
      {one(R"({"dtype":"F32","shape":[1.0],"data_offsets":[0,4]})"), 4, "sizes >= 0"},
      {one(R"({"dtype":"F32","shape":[1],"data_offsets":[0]})"), 4, "not [begin, end]"},
      {one(R"({"dtype":"F32","shape":[1],"data_offsets":[0,-4]})"), 4, "not [begin, end]"},
      {one(R"({"dtype":"F32","shape":[1],"data_offsets":[4,0]})"), 4, "outside of the data"},
      {one(R"({"dtype":"F32","shape":[1],"data_offsets":[0,4]})"), 3, "data, 3 bytes"},
      {one(R"({"dtype":"F32","shape":[2],"data_offsets":[0,4]})"), 4, "need 8 bytes"},
      {one(R"({"dtype":"F32","shape":[4611686018427387904,4],"data_offsets":[0,4]})"), 4,
       "more than 2^63"},
      {one(R"({"dtype":"F32","shape":[18446744073709551615],"data_offsets":[0,4]})"), 4,
       "sizes >= 0"},
      {one(R"({"dtype":"U8","shape":[1],"data_offsets":[1,2]})"), 2, "expected 0"},
      {one(R"({"dtype":"U8","shape":[1],"data_offsets":[0,1]})"), 2, "end at byte 1"},
      {R"({"a":{"dtype":"U8","shape":[2],"data_offsets":[0,2]},)"
       R"("b":{"dtype":"U8","shape":[2],"data_offsets":[1,3]}})",
       3, "overlaps"},
      {R"({"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},)"
       R"("a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}})",
       1, "\"a\" stands twice"},
      {R"({"__metadata__":[]})", 0, "`__metadata__` is not an object"},
      {R"({"__metadata__":{"k":1}})", 0, "\"k\" is not a string"},
      {std::string(100'000, '['), 0, "nested too deeply"},
  }));
  CAPTURE(header.substr(0, 200), bytes);
  const auto parsed = parse_tensor_index(header, bytes);
  REQUIRE_FALSE(parsed.ok());
  CHECK(parsed.error().code == Errc::bad_data);
  CHECK_THAT(parsed.error().message, ContainsSubstring(message));
}

// What must hold for anything that was accepted.
void check_sound(const TensorIndex& index, std::int64_t data_bytes) {
  std::int64_t position = 0;
  for (const auto& entry : index.entries) {
    std::int64_t elements = 1;
    for (const auto size : entry.shape) elements *= size;
    REQUIRE(entry.begin == position);
    REQUIRE(entry.bytes() == elements * element_bytes(entry.type));
    position = entry.end;
  }
  REQUIRE(position == data_bytes);
}

/// `example` with one to four random edits.
std::string corrupted(std::uint32_t seed) {
  std::mt19937 random(seed);
  auto text = json_of(example());
  const auto anywhere = [&] { return random() % text.size(); };
  for (auto edits = 1 + random() % 4; edits > 0; --edits) {
    switch (random() % 5) {
      case 0: text[anywhere()] = static_cast<char>(random()); break;
      case 1: text.erase(anywhere(), 1 + random() % 8); break;
      case 2: text.insert(anywhere(), 1, "0123456789-[]{},:\"\\e."[random() % 20]); break;
      case 3: text.insert(anywhere(), text.substr(anywhere(), random() % 30)); break;
      case 4: std::swap(text[anywhere()], text[anywhere()]); break;
    }
    if (text.empty()) text = " ";
  }
  return text;
}

TEST_CASE("a corrupted header is refused or sound, never worse", "[state][property]") {
  const std::int64_t memory_before = testing::peak_memory_mib();
  for (std::uint32_t seed = testing::tries(3000); seed > 0; --seed) {
    const auto parsed = parse_tensor_index(corrupted(seed), 31);
    INFO("seed " << seed);
    if (parsed.ok())
      check_sound(parsed.value(), 31);
    else
      CHECK(parsed.error().code == Errc::bad_data);
  }
  CHECK(testing::peak_memory_mib() - memory_before < testing::kMemoryOfTriesMax);
}

}  // namespace
}  // namespace troupe::state
