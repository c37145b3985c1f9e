#include "models/initial_value.hpp"

#include <ATen/Parallel.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/zeros.h>

#include <array>
#include <cmath>
#include <numbers>

namespace troupe::models {

namespace {

// Philox 4x32-10: Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", SC 2011, section
// 3.3; the constants are the paper's.
std::array<std::uint32_t, 4> philox(std::uint64_t key, std::uint64_t counter) {
  std::array<std::uint32_t, 4> x{static_cast<std::uint32_t>(counter),
                                 static_cast<std::uint32_t>(counter >> 32), 0, 0};
  auto key0 = static_cast<std::uint32_t>(key), key1 = static_cast<std::uint32_t>(key >> 32);
  for (int round = 0; round < 10; ++round) {
    const auto product0 = std::uint64_t{0xD2511F53} * x[0];
    const auto product1 = std::uint64_t{0xCD9E8D57} * x[2];
    x = {static_cast<std::uint32_t>(product1 >> 32) ^ x[1] ^ key0,
         static_cast<std::uint32_t>(product1),
         static_cast<std::uint32_t>(product0 >> 32) ^ x[3] ^ key1,
         static_cast<std::uint32_t>(product0)};
    key0 += 0x9E3779B9;
    key1 += 0xBB67AE85;
  }
  return x;
}

// FNV-1a over the name, then a finalizer that spreads every bit of hash and seed over the key.
std::uint64_t key_of(std::uint64_t seed, const std::string& name) {
  std::uint64_t hash = 0xCBF29CE484222325;
  for (const char c : name) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001B3;
  std::uint64_t key = hash ^ (seed * 0x9E3779B97F4A7C15);
  key = (key ^ (key >> 30)) * 0xBF58476D1CE4E5B9;
  key = (key ^ (key >> 27)) * 0x94D049BB133111EB;
  return key ^ (key >> 31);
}

// A double in (0, 1] from 53 bits.
double uniform(std::uint32_t high, std::uint32_t low) {
  const auto bits = (std::uint64_t{high} << 32 | low) >> 11;
  return static_cast<double>(bits + 1) * 0x1p-53;
}

void fill_normal(double* values, std::int64_t count, std::uint64_t key, double deviation) {
  at::parallel_for(0, (count + 1) / 2, 4096, [&](std::int64_t begin, std::int64_t end) {
    for (auto pair = begin; pair < end; ++pair) {
      const auto bits = philox(key, static_cast<std::uint64_t>(pair));
      const double radius = deviation * std::sqrt(-2 * std::log(uniform(bits[0], bits[1])));
      const double angle = 2 * std::numbers::pi * uniform(bits[2], bits[3]);
      values[2 * pair] = radius * std::cos(angle);
      if (2 * pair + 1 < count) values[2 * pair + 1] = radius * std::sin(angle);
    }
  });
}

// Wavelengths grow geometrically from 2 pi to 10000 * 2 pi over half the channels.
void fill_sinusoid(double* values, std::int64_t positions, std::int64_t channels) {
  const auto half = channels / 2;
  const double step = std::log(10000.0) / static_cast<double>(half - 1);
  for (std::int64_t position = 0; position < positions; ++position, values += channels)
    for (std::int64_t j = 0; j < half; ++j) {
      const double angle = static_cast<double>(position) * std::exp(-step * static_cast<double>(j));
      values[j] = std::sin(angle);
      values[half + j] = std::cos(angle);
    }
}

}  // namespace

at::Tensor initial_value(std::uint64_t seed, const std::string& name,
                         const std::vector<std::int64_t>& shape, Initial kind, double deviation) {
  if (kind == Initial::ones) return at::ones(shape, at::kDouble);
  if (kind == Initial::zeros) return at::zeros(shape, at::kDouble);
  auto value = at::empty(shape, at::kDouble);
  auto* data = value.mutable_data_ptr<double>();
  if (kind == Initial::sinusoid)
    fill_sinusoid(data, shape[0], shape[1]);
  else
    fill_normal(data, value.numel(), key_of(seed, name), deviation);
  return value;
}

}  // namespace troupe::models
