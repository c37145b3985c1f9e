#include "runtime/data/resize_image.hpp"

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "runtime/vocabulary/cpu_clones.hpp"

namespace troupe::data {
namespace {

// The weights are scaled by 2^22: 32 bits less 8 for the pixel and 2 for sums beyond one.
constexpr int kFractionBits = 32 - 8 - 2;
constexpr std::int32_t kHalf = 1 << (kFractionBits - 1);

/// Where each output sample looks: `taps` weights from input sample `begin` on.
struct Taps {
  std::vector<std::int32_t> begin;
  std::vector<std::int32_t> count;
  std::vector<std::int32_t> weights;  // [output][stride]
  std::int32_t stride = 0;
};

double cubic(double x) {  // Keys' kernel with a = -0.5.
  constexpr double a = -0.5;
  x = std::abs(x);
  if (x < 1) return ((a + 2) * x - (a + 3)) * x * x + 1;
  if (x < 2) return (((x - 5) * x + 8) * x - 4) * a;
  return 0;
}

std::int32_t fixed_point(double weight) {  // Halves away from zero.
  const double scaled = weight * (1 << kFractionBits);
  return static_cast<std::int32_t>(scaled < 0 ? scaled - 0.5 : scaled + 0.5);
}

// The order of operations is Pillow's, so that weights agree to the last bit.
void fill_weights(Taps& taps, std::int32_t out, double center, double inverse_scale) {
  const auto begin = taps.begin[static_cast<std::size_t>(out)];
  const auto count = taps.count[static_cast<std::size_t>(out)];
  std::vector<double> weights(static_cast<std::size_t>(count));
  double sum = 0;
  for (std::int32_t i = 0; i < count; ++i) {
    const double weight = cubic((i + begin - center + 0.5) * inverse_scale);
    weights[static_cast<std::size_t>(i)] = weight;
    sum += weight;
  }
  auto* to = taps.weights.data() + static_cast<std::ptrdiff_t>(out) * taps.stride;
  for (std::size_t i = 0; i < weights.size(); ++i)
    to[i] = fixed_point(sum != 0 ? weights[i] / sum : weights[i]);
}

Taps make_taps(std::int32_t in_size, std::int32_t out_size) {
  const double scale = static_cast<double>(in_size) / out_size;
  const double filter_scale = std::max(scale, 1.0);
  const double support = 2.0 * filter_scale;
  const double inverse_scale = 1.0 / filter_scale;

  Taps taps;
  taps.stride = static_cast<std::int32_t>(std::ceil(support)) * 2 + 1;
  taps.weights.resize(static_cast<std::size_t>(out_size) * static_cast<std::size_t>(taps.stride));
  for (std::int32_t out = 0; out < out_size; ++out) {
    const double center = (out + 0.5) * scale;
    const auto begin = std::max(static_cast<std::int32_t>(center - support + 0.5), 0);
    const auto end = std::min(static_cast<std::int32_t>(center + support + 0.5), in_size);
    taps.begin.push_back(begin);
    taps.count.push_back(end - begin);
    fill_weights(taps, out, center, inverse_scale);
  }
  return taps;
}

TROUPE_INLINE std::uint8_t to_byte(std::int32_t sum) {
  return static_cast<std::uint8_t>(std::clamp(sum >> kFractionBits, 0, 255));
}

/// Red, green, blue and nothing: one instruction weighs all.
using Channels = std::int32_t __attribute__((vector_size(16)));
struct WidePixel {
  Channels channels;
};

/// `pixels`: room for the row and for as many black ones as an output sample has weights, so that
/// all of them take the same number of turns, which branch prediction likes.
TROUPE_CLONES
void resize_row(const std::uint8_t* in, std::int32_t in_width, std::uint8_t* out,
                std::int32_t out_width, const Taps& taps, WidePixel* pixels) {
  for (std::int32_t x = 0; x < in_width; ++x, in += 3)
    pixels[x].channels = Channels{in[0], in[1], in[2], 0};
  const std::int32_t* begin = taps.begin.data();
  const std::int32_t* weight = taps.weights.data();
  const std::int32_t stride = taps.stride;
  for (std::int32_t x = 0; x < out_width; ++x, out += 3, weight += stride) {
    const WidePixel* pixel = pixels + begin[x];
    Channels sum{kHalf, kHalf, kHalf, 0};
    for (std::int32_t i = 0; i < stride; ++i) sum += pixel[i].channels * weight[i];
    for (int channel = 0; channel < 3; ++channel) out[channel] = to_byte(sum[channel]);
  }
}

RgbImage resize_across(const RgbImage& image, std::int32_t width) {
  const Taps taps = make_taps(image.width, width);
  RgbImage out{width, image.height, {}};
  out.rgb.resize(3 * static_cast<std::size_t>(width) * static_cast<std::size_t>(image.height));
  std::vector<WidePixel> pixels(static_cast<std::size_t>(image.width + taps.stride));
  for (std::int32_t y = 0; y < image.height; ++y)
    resize_row(image.rgb.data() + 3 * static_cast<std::ptrdiff_t>(y) * image.width, image.width,
               out.rgb.data() + 3 * static_cast<std::ptrdiff_t>(y) * width, width, taps,
               pixels.data());
  return out;
}

TROUPE_CLONES
void add_weighted_row(std::int32_t* __restrict sums, const std::uint8_t* __restrict row,
                      std::size_t size, std::int32_t weight) {
  for (std::size_t i = 0; i < size; ++i) sums[i] += row[i] * weight;
}

// Row by row over whole lines of bytes: sequential memory, and loops the compiler vectorises.
RgbImage resize_down(const RgbImage& image, std::int32_t height) {
  const Taps taps = make_taps(image.height, height);
  const std::size_t line = 3 * static_cast<std::size_t>(image.width);
  RgbImage out{image.width, height,
               std::vector<std::uint8_t>(line * static_cast<std::size_t>(height))};
  std::vector<std::int32_t> sums(line);
  for (std::size_t y = 0; y < static_cast<std::size_t>(height); ++y) {
    std::fill(sums.begin(), sums.end(), kHalf);
    const std::int32_t* weights = taps.weights.data() + y * static_cast<std::size_t>(taps.stride);
    const std::uint8_t* row = image.rgb.data() + static_cast<std::size_t>(taps.begin[y]) * line;
    for (std::int32_t i = 0; i < taps.count[y]; ++i, row += line)
      add_weighted_row(sums.data(), row, line, weights[i]);
    std::transform(sums.begin(), sums.end(),
                   out.rgb.begin() + static_cast<std::ptrdiff_t>(y * line), to_byte);
  }
  return out;
}

/// Python's round(): halves to even, in every rounding mode of the caller.
std::int64_t round_half_even(std::int64_t value, std::int64_t divisor) {
  const std::int64_t quotient = value / divisor, twice = value % divisor * 2;
  if (twice != divisor) return quotient + (twice > divisor ? 1 : 0);
  return quotient + quotient % 2;
}

}  // namespace

Result<ImageSize> smart_resize(ImageSize size, std::int32_t factor, std::int64_t min_pixels,
                               std::int64_t max_pixels) {
  const double height = size.height, width = size.width;
  if (std::max(height, width) > 200 * std::min(height, width))
    return Error{Errc::bad_data,
                 "the picture is " + std::to_string(size.width) + " x " +
                     std::to_string(size.height) + ": one side is more than 200 times the other",
                 "", "crop it"};
  std::int64_t new_height = round_half_even(size.height, factor) * factor;
  std::int64_t new_width = round_half_even(size.width, factor) * factor;
  if (new_height * new_width > max_pixels) {
    const double beta = std::sqrt(height * width / static_cast<double>(max_pixels));
    new_height = static_cast<std::int64_t>(std::floor(height / beta / factor)) * factor;
    new_width = static_cast<std::int64_t>(std::floor(width / beta / factor)) * factor;
  } else if (new_height * new_width < min_pixels) {
    const double beta = std::sqrt(static_cast<double>(min_pixels) / (height * width));
    new_height = static_cast<std::int64_t>(std::ceil(height * beta / factor)) * factor;
    new_width = static_cast<std::int64_t>(std::ceil(width * beta / factor)) * factor;
  }
  const std::int64_t least = factor;
  return ImageSize{static_cast<std::int32_t>(std::max(new_width, least)),
                   static_cast<std::int32_t>(std::max(new_height, least))};
}

RgbImage resize_bicubic(const RgbImage& image, ImageSize size) {
  const auto across = [&](const RgbImage& from) {
    return size.width == from.width ? from : resize_across(from, size.width);
  };
  const auto down = [&](const RgbImage& from) {
    return size.height == from.height ? from : resize_down(from, size.height);
  };
  // Bytes are clipped between the passes, so their order shows. Pillow has gone down first since
  // version 13 where the height loses more than twice as many pixels as the width.
  const std::int32_t lost_rows = image.height - size.height;
  const std::int32_t lost_columns = image.width - size.width;
  const bool is_down_first = lost_rows > 0 && lost_rows > 2 * lost_columns;
  return is_down_first ? across(down(image)) : down(across(image));
}

}  // namespace troupe::data
