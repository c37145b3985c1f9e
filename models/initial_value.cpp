#include "models/initial_value.hpp"

#include <ATen/ops/empty.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cmath>
#include <numbers>
#include <system_error>
#include <thread>

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

constexpr std::int64_t kPairsOfPart = std::int64_t{1} << 15;  // About a millisecond.

// Calls `run(begin, end)` on parts of [0, count) by so many threads at most, the caller's among
// them. Threads of their own, as operators may have one alone, and only for as long as this takes.
template <class Run>
void run_in_parts(std::int64_t count, int threads, const Run& run) {
  const std::int64_t parts = (count + kPairsOfPart - 1) / kPairsOfPart;
  std::atomic<std::int64_t> next = 0;
  const auto work = [&] {
    for (auto part = next++; part < parts; part = next++)
      run(part * kPairsOfPart, std::min(count, (part + 1) * kPairsOfPart));
  };
  std::vector<std::jthread> others;
  try {
    for (std::int64_t i = 1; i < std::min<std::int64_t>(threads, parts); ++i)
      others.emplace_back(work);
  } catch (const std::system_error&) {  // No more of them: those that there are do it.
  }
  work();
}

template <class T>
void fill_normal(T* values, std::int64_t count, std::uint64_t key, double deviation, int threads) {
  run_in_parts((count + 1) / 2, threads, [&](std::int64_t begin, std::int64_t end) {
    for (auto pair = begin; pair < end; ++pair) {
      const auto bits = philox(key, static_cast<std::uint64_t>(pair));
      const double radius = deviation * std::sqrt(-2 * std::log(uniform(bits[0], bits[1])));
      const double angle = 2 * std::numbers::pi * uniform(bits[2], bits[3]);
      values[2 * pair] = static_cast<T>(radius * std::cos(angle));
      if (2 * pair + 1 < count) values[2 * pair + 1] = static_cast<T>(radius * std::sin(angle));
    }
  });
}

template <class T>
at::Tensor normal(std::uint64_t key, const std::vector<std::int64_t>& shape, double deviation,
                  const Drawing& drawing) {
  auto value = at::empty(shape, drawing.dtype);
  fill_normal(value.mutable_data_ptr<T>(), value.numel(), key, deviation, drawing.threads);
  return value;
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
                         const std::vector<std::int64_t>& shape, Initial kind, double deviation,
                         Drawing drawing) {
  if (kind == Initial::ones) return at::ones(shape, drawing.dtype);
  if (kind == Initial::zeros) return at::zeros(shape, drawing.dtype);
  if (kind == Initial::sinusoid) {
    auto value = at::empty(shape, at::kDouble);
    fill_sinusoid(value.mutable_data_ptr<double>(), shape[0], shape[1]);
    return value.to(drawing.dtype);
  }
  const auto key = key_of(seed, name);
  switch (drawing.dtype) {
    case at::kFloat: return normal<float>(key, shape, deviation, drawing);
    case at::kBFloat16: return normal<c10::BFloat16>(key, shape, deviation, drawing);
    default: return normal<double>(key, shape, deviation, drawing);
  }
}

}  // namespace troupe::models
