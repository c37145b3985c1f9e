#include "tests/torch_catch.hpp"

#include "runtime/state/safetensors.hpp"

#include <ATen/ops/arange.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/full.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>

#include <catch2/generators/catch_generators_all.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>
#include <fstream>
#include <iterator>
#include <random>
#include <string>

#include "tests/support/scratch_folder.hpp"

using Catch::Matchers::ContainsSubstring;
using troupe::testing::ScratchFolder;

namespace troupe::state {
namespace {

std::string read_text(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

void write_text(const std::filesystem::path& path, const std::string& text) {
  std::ofstream(path, std::ios::binary) << text;
}

TensorMap example() {
  TensorMap tensors;
  for (const auto type : {at::kDouble, at::kFloat, at::kHalf, at::kBFloat16, at::kLong, at::kInt,
                          at::kByte, at::kBool})
    tensors[std::string("of.") + c10::toString(type)] = at::arange(3, at::kFloat).to(type);
  tensors["scalar"] = at::full({}, 2.5);
  tensors["empty"] = at::empty({0, 3});
  tensors["strided"] = at::arange(6, at::kFloat).reshape({2, 3}).t();
  return tensors;
}

TEST_CASE("tensors of every type come back as they were written", "[state]") {
  const ScratchFolder folder;
  const auto path = folder / "new/model.safetensors";
  REQUIRE(write_safetensors(path, example(), {{"step", "7"}}).ok());
  const auto reader = SafetensorsReader::open(path);
  REQUIRE(reader.ok());
  CHECK(reader.value().index().metadata.at("format") == "pt");
  CHECK(reader.value().index().metadata.at("step") == "7");
  const auto tensors = reader.value().read_all();
  REQUIRE(tensors.ok());
  REQUIRE(tensors.value().size() == example().size());
  for (const auto& [name, tensor] : example()) {
    CAPTURE(name);
    const auto& read = tensors.value().at(name);
    CHECK(read.scalar_type() == tensor.scalar_type());
    CHECK(at::equal(read, tensor));
    CHECK(read.is_contiguous());
  }
}

TEST_CASE("a file written by the format's own library is read", "[state]") {
  const auto tensors = read_safetensors("tests/reference/state/adamw.safetensors");
  REQUIRE(tensors.ok());
  const std::pair<const char*, at::ScalarType> types[] = {
      {"float64", at::kDouble},    {"float32", at::kFloat}, {"float16", at::kHalf},
      {"bfloat16", at::kBFloat16}, {"int64", at::kLong},    {"int32", at::kInt}};
  for (const auto& [name, type] : types) {
    CAPTURE(name);
    const auto& tensor = tensors.value().at(std::string("types.") + name);
    CHECK(tensor.scalar_type() == type);
    CHECK(at::equal(tensor.to(at::kDouble), at::tensor({0.0, 1.0, -2.0, 3.0}, at::kDouble)));
  }
  CHECK(tensors.value().at("types.bool").sum().item<int>() == 3);
  CHECK(tensors.value().at("types.scalar").item<float>() == 2.5F);
  CHECK(tensors.value().at("types.empty").sizes() == at::IntArrayRef({0, 3}));
}

TEST_CASE("each tensor begins at a multiple of its element size", "[state]") {
  const ScratchFolder folder;
  REQUIRE(write_safetensors(folder / "m.safetensors", example()).ok());
  const auto reader = SafetensorsReader::open(folder / "m.safetensors");
  REQUIRE(reader.ok());
  for (const auto& entry : reader.value().index().entries)
    CHECK(entry.begin % element_bytes(entry.type) == 0);
}

TEST_CASE("equal tensors give equal files", "[state]") {
  const ScratchFolder folder;
  REQUIRE(write_safetensors(folder / "a", example()).ok());
  REQUIRE(write_safetensors(folder / "b", example()).ok());
  CHECK(read_text(folder / "a") == read_text(folder / "b"));
}

TEST_CASE("writing replaces a file at once and leaves nothing else behind", "[state]") {
  const ScratchFolder folder;
  REQUIRE(write_safetensors(folder / "m", {{"old", at::ones({2})}}).ok());
  REQUIRE(write_safetensors(folder / "m", {{"new", at::ones({3})}}).ok());
  CHECK(read_safetensors(folder / "m").value().contains("new"));
  // A refused write leaves the old file alone.
  CHECK_FALSE(write_safetensors(folder / "m", {{"bad", at::Tensor()}}).ok());
  CHECK(read_safetensors(folder / "m").value().contains("new"));
  const auto files = std::filesystem::directory_iterator(folder.path());
  CHECK(std::distance(begin(files), end(files)) == 1);
}

TEST_CASE("what cannot be written is refused by name", "[state][errors]") {
  const ScratchFolder folder;
  const auto undefined = write_safetensors(folder / "m", {{"w", at::Tensor()}});
  REQUIRE_FALSE(undefined.ok());
  CHECK(undefined.error().code == Errc::invalid_argument);
  CHECK_THAT(undefined.error().message, ContainsSubstring("'w' is undefined"));
  const auto complex = write_safetensors(folder / "m", {{"w", at::zeros({1}, at::kComplexFloat)}});
  REQUIRE_FALSE(complex.ok());
  CHECK_THAT(complex.error().message, ContainsSubstring("ComplexFloat"));
  CHECK_FALSE(write_safetensors(folder / "m", {{"__metadata__", at::ones({1})}}).ok());
  write_text(folder / "file", "");
  const auto blocked = write_safetensors(folder / "file/m", {{"w", at::ones({1})}});
  REQUIRE_FALSE(blocked.ok());
  CHECK(blocked.error().code == Errc::io_failed);
}

TEST_CASE("missing files, wrong files and unknown names are told apart", "[state][errors]") {
  const ScratchFolder folder;
  CHECK(SafetensorsReader::open(folder / "none").error().code == Errc::not_found);
  CHECK(SafetensorsReader::open(folder.path()).error().code == Errc::bad_data);
  write_text(folder / "short", "abc");
  CHECK_THAT(SafetensorsReader::open(folder / "short").error().message,
             ContainsSubstring("it has 3 bytes"));
  write_text(folder / "huge", std::string(8, '\xff') + "{}");
  CHECK_THAT(SafetensorsReader::open(folder / "huge").error().message,
             ContainsSubstring("claims 18446744073709551615 bytes, at most 2"));
  REQUIRE(write_safetensors(folder / "m", {{"llm.weight", at::ones({1})}}).ok());
  const auto unknown = SafetensorsReader::open(folder / "m").value().read("llm.wieght");
  REQUIRE_FALSE(unknown.ok());
  CHECK(unknown.error().code == Errc::not_found);
  CHECK(unknown.error().fix == "did you mean 'llm.weight'?");
}

TEST_CASE("a file that shrinks under its reader is an error", "[state][errors]") {
  const ScratchFolder folder;
  REQUIRE(write_safetensors(folder / "m", {{"w", at::ones({100})}}).ok());
  const auto reader = SafetensorsReader::open(folder / "m");
  REQUIRE(reader.ok());
  std::filesystem::resize_file(folder / "m", 200);
  const auto read = reader.value().read("w");
  REQUIRE_FALSE(read.ok());
  CHECK(read.error().code == Errc::io_failed);
}

TEST_CASE("every truncation and random damage is refused or read, never worse",
          "[state][property]") {
  const ScratchFolder folder;
  const TensorMap tensors{{"a", at::arange(5, at::kFloat)}, {"b", at::ones({2}, at::kByte)}};
  REQUIRE(write_safetensors(folder / "m", tensors).ok());
  const auto whole = read_text(folder / "m");
  for (std::size_t length = 0; length < whole.size(); ++length) {
    write_text(folder / "cut", whole.substr(0, length));
    REQUIRE_FALSE(read_safetensors(folder / "cut").ok());
  }
  for (unsigned seed = 0; seed < 500; ++seed) {
    std::mt19937 random(seed);
    auto damaged = whole;
    for (int edits = 0; edits < 3; ++edits)
      damaged[random() % damaged.size()] = static_cast<char>(random());
    write_text(folder / "damaged", damaged);
    const auto read = read_safetensors(folder / "damaged");
    if (!read.ok()) CHECK(read.error().code == Errc::bad_data);
  }
}

}  // namespace
}  // namespace troupe::state
