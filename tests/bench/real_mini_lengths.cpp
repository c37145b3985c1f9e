#include "tests/bench/real_mini_lengths.hpp"

#include <filesystem>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>

namespace troupe::bench {

namespace {

using Json = nlohmann::json;

std::int64_t big_endian(const std::string& bytes, std::size_t at) {
  return static_cast<unsigned char>(bytes[at]) * 256 + static_cast<unsigned char>(bytes[at + 1]);
}

// Walks a JPEG's segments to the frame header, which holds height and width.
std::int64_t image_tokens(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  const std::string bytes{std::istreambuf_iterator<char>(file), {}};
  for (std::size_t at = 2; at + 9 < bytes.size();) {
    const auto marker = static_cast<unsigned char>(bytes[at + 1]);
    const bool frame =
        marker >= 0xc0 && marker <= 0xcf && marker != 0xc4 && marker != 0xc8 && marker != 0xcc;
    if (frame) {
      const auto rows = (big_endian(bytes, at + 5) + 14) / 28;
      const auto columns = (big_endian(bytes, at + 7) + 14) / 28;
      return std::max<std::int64_t>(1, rows) * std::max<std::int64_t>(1, columns);
    }
    at += 2 + static_cast<std::size_t>(big_endian(bytes, at + 2));
  }
  return 1;
}

// 16-bit mono at 8 kHz behind a header of 44 bytes.
std::int64_t clip_tokens(const std::filesystem::path& path) {
  std::error_code missing;
  const auto bytes = std::filesystem::file_size(path, missing);
  return missing ? 1 : 1 + static_cast<std::int64_t>((bytes - 44) * 25 / 16000);
}

std::vector<std::string> names(const Json& sample, const char* key) {
  if (!sample.contains(key)) return {};
  if (sample[key].is_string()) return {sample[key].get<std::string>()};
  return sample[key].get<std::vector<std::string>>();
}

}  // namespace

std::vector<balancer::SampleLengths> real_mini_lengths(const std::string& folder) {
  std::ifstream file(folder + "/samples.json");
  if (!file) return {};
  std::vector<balancer::SampleLengths> samples;
  for (const auto& sample : Json::parse(file)) {
    balancer::SampleLengths lengths;
    const std::filesystem::path root(folder);
    for (const auto& name : names(sample, "image"))
      lengths.media.push_back(image_tokens(root / name));
    for (const auto& name : names(sample, "audio"))
      lengths.media.push_back(clip_tokens(root / name));
    for (const auto& turn : sample["conversations"])
      lengths.text += static_cast<std::int64_t>(turn["value"].get<std::string>().size());
    samples.push_back(std::move(lengths));
  }
  return samples;
}

}  // namespace troupe::bench
