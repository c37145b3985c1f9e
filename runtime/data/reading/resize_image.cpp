#include "runtime/data/reading/resize_image.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>
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
  std::vector<std::int32_t> weights;  // [output][stride], zeros after `count`.
  std::int32_t stride = 0;            // Even.
};

double cubic(double x) {  // Keys' kernel with a = -0.5.
  constexpr double a = -0.5;
  x = std::abs(x);
  if (x < 1) return ((a + 2) * x - (a + 3)) * x * x + 1;
  if (x < 2) return (((x - 5) * x + 8) * x - 4) * a;
  return 0;
}

double triangle(double x) { return std::max(0.0, 1 - std::abs(x)); }

/// How a pixel at a distance weighs, and from which distance on it does not.
struct Kernel {
  double (*weight)(double);
  double support;
};

Kernel kernel_of(PixelFilter filter) {
  return filter == PixelFilter::bilinear ? Kernel{triangle, 1.0} : Kernel{cubic, 2.0};
}

/// A side after resizing, and which of its samples are wanted.
struct ResizedSide {
  std::int32_t size = 0;
  std::int32_t first = 0;
  std::int32_t count = 0;

  bool is_all_of(std::int32_t side) const { return size == side && count == side; }
};

std::int32_t fixed_point(double weight) {  // Halves away from zero.
  const double scaled = weight * (1 << kFractionBits);
  return static_cast<std::int32_t>(scaled < 0 ? scaled - 0.5 : scaled + 0.5);
}

// The order of operations is Pillow's, so that weights agree to the last bit.
void fill_weights(Taps& taps, std::int32_t out, double center, double inverse_scale,
                  const Kernel& kernel, std::vector<double>& weights) {
  const auto begin = taps.begin[static_cast<std::size_t>(out)];
  weights.resize(static_cast<std::size_t>(taps.count[static_cast<std::size_t>(out)]));
  double sum = 0;
  for (std::int32_t i = 0; auto& weight : weights) {
    weight = kernel.weight((i++ + begin - center + 0.5) * inverse_scale);
    sum += weight;
  }
  auto* to = taps.weights.data() + static_cast<std::ptrdiff_t>(out) * taps.stride;
  for (const double weight : weights) *to++ = fixed_point(sum != 0 ? weight / sum : weight);
}

Taps make_taps(std::int32_t in_size, const ResizedSide& side, const Kernel& kernel) {
  const double scale = static_cast<double>(in_size) / side.size;
  const double filter_scale = std::max(scale, 1.0);
  const double support = kernel.support * filter_scale;
  const double inverse_scale = 1.0 / filter_scale;

  const auto center_of = [&](std::int32_t out) { return (side.first + out + 0.5) * scale; };
  Taps taps;
  for (std::int32_t out = 0; out < side.count; ++out) {
    const double center = center_of(out);
    const auto begin = std::max(static_cast<std::int32_t>(center - support + 0.5), 0);
    const auto end = std::min(static_cast<std::int32_t>(center + support + 0.5), in_size);
    taps.begin.push_back(begin);
    taps.count.push_back(end - begin);
  }
  taps.stride = (*std::max_element(taps.count.begin(), taps.count.end()) + 1) / 2 * 2;
  taps.weights.resize(static_cast<std::size_t>(side.count) * static_cast<std::size_t>(taps.stride));
  std::vector<double> weights;
  for (std::int32_t out = 0; out < side.count; ++out)
    fill_weights(taps, out, center_of(out), inverse_scale, kernel, weights);
  return taps;
}

/// Red, green, blue and one lane that nobody reads: one instruction weighs all.
using Channels = std::int32_t __attribute__((vector_size(16)));
using Bytes16 = std::uint8_t __attribute__((vector_size(16)));
/// Two neighbours, at any pixel: one instruction weighs both.
using TwoPixels = std::int32_t __attribute__((vector_size(32), aligned(16)));
using TwoWeights = std::int64_t __attribute__((vector_size(32)));
struct WidePixel {
  Channels channels;
};

/// Reads a byte beyond the pixel: not for the last one of a picture.
TROUPE_INLINE Channels widen(const std::uint8_t* pixel) {
  std::int32_t bytes;
  std::memcpy(&bytes, pixel, sizeof bytes);
  return reinterpret_cast<Channels>(
      __builtin_shuffle(reinterpret_cast<Bytes16>(Channels{bytes, 0, 0, 0}),
                        Bytes16{0, 4, 4, 4, 1, 4, 4, 4, 2, 4, 4, 4, 3, 4, 4, 4}));
}

/// The channels of a weighted sum as bytes, in the order of memory.
TROUPE_INLINE std::int32_t to_bytes(Channels sum) {
  const Channels whole = sum >> kFractionBits;
  const Channels positive = whole < 0 ? Channels{} : whole;
  const Channels clamped = positive > 255 ? Channels{255, 255, 255, 255} : positive;
  return reinterpret_cast<Channels>(
      __builtin_shuffle(reinterpret_cast<Bytes16>(clamped),
                        Bytes16{0, 4, 8, 12, 0, 4, 8, 12, 0, 4, 8, 12, 0, 4, 8, 12}))[0];
}

/// `pixels`: room for the row and for as many black ones as an output sample has weights, so that
/// all of them take the same number of turns, which branch prediction likes.
TROUPE_CLONES
void resize_row(const std::uint8_t* in, std::int32_t in_width, std::uint8_t* out,
                std::int32_t out_width, const Taps& taps, WidePixel* pixels) {
  const std::int32_t in_last = in_width - 1, out_last = out_width - 1;
  for (std::int32_t x = 0; x < in_last; ++x, in += 3) pixels[x].channels = widen(in);
  pixels[in_last].channels = Channels{in[0], in[1], in[2], 0};
  const std::int32_t* begin = taps.begin.data();
  const std::int32_t* weight = taps.weights.data();
  const std::int32_t stride = taps.stride;
  for (std::int32_t x = 0; x < out_width; ++x, out += 3, weight += stride) {
    const WidePixel* pixel = pixels + begin[x];
    TwoPixels sums{kHalf, kHalf, kHalf, 0, 0, 0, 0, 0};
    for (std::int32_t i = 0; i < stride; i += 2) {
      std::int64_t both;
      std::memcpy(&both, weight + i, sizeof both);
      const auto pairs = reinterpret_cast<TwoPixels>(TwoWeights{both, both, both, both});
      sums += *reinterpret_cast<const TwoPixels*>(pixel + i) *
              __builtin_shuffle(pairs, TwoPixels{0, 0, 0, 0, 1, 1, 1, 1});
    }
    const std::int32_t bytes = to_bytes(__builtin_shufflevector(sums, sums, 0, 1, 2, 3) +
                                        __builtin_shufflevector(sums, sums, 4, 5, 6, 7));
    // The fourth byte is the next pixel's, which comes later.
    std::memcpy(out, &bytes, x < out_last ? 4 : 3);
  }
}

RgbImage resize_across(const RgbImage& image, const ResizedSide& side, const Kernel& kernel) {
  const Taps taps = make_taps(image.width, side, kernel);
  const std::int32_t width = side.count;
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
void resize_line(const std::uint8_t* __restrict rows, std::size_t line,
                 const std::int32_t* __restrict weights, std::int32_t count,
                 std::int32_t* __restrict sums, std::uint8_t* __restrict out) {
  for (std::size_t i = 0; i < line; ++i) sums[i] = kHalf + rows[i] * weights[0];
  for (std::int32_t row = 1; row < count; ++row) {
    rows += line;
    for (std::size_t i = 0; i < line; ++i) sums[i] += rows[i] * weights[row];
  }
  for (std::size_t i = 0; i < line; ++i)
    out[i] = static_cast<std::uint8_t>(std::clamp(sums[i] >> kFractionBits, 0, 255));
}

// Row by row over whole lines of bytes: sequential memory, and loops the compiler vectorises.
RgbImage resize_down(const RgbImage& image, const ResizedSide& side, const Kernel& kernel) {
  const Taps taps = make_taps(image.height, side, kernel);
  const std::int32_t height = side.count;
  const std::size_t line = 3 * static_cast<std::size_t>(image.width);
  RgbImage out{image.width, height,
               std::vector<std::uint8_t>(line * static_cast<std::size_t>(height))};
  std::vector<std::int32_t> sums(line);
  for (std::size_t y = 0; y < static_cast<std::size_t>(height); ++y)
    resize_line(image.rgb.data() + static_cast<std::size_t>(taps.begin[y]) * line, line,
                taps.weights.data() + y * static_cast<std::size_t>(taps.stride), taps.count[y],
                sums.data(), out.rgb.data() + y * line);
  return out;
}

/// Python's round(): halves to even, in every rounding mode of the caller.
std::int64_t round_half_even(std::int64_t value, std::int64_t divisor) {
  const std::int64_t quotient = value / divisor, twice = value % divisor * 2;
  if (twice != divisor) return quotient + (twice > divisor ? 1 : 0);
  return quotient + quotient % 2;
}

Status check_sides(ImageSize size) {
  const double height = size.height, width = size.width;
  if (std::max(height, width) > 200 * std::min(height, width))
    return Error{Errc::bad_data,
                 "the picture is " + std::to_string(size.width) + " x " +
                     std::to_string(size.height) + ": one side is more than 200 times the other",
                 "", "crop it"};
  return Done{};
}

}  // namespace

Result<ImageSize> smart_resize(ImageSize size, std::int32_t factor, std::int64_t min_pixels,
                               std::int64_t max_pixels) {
  if (auto fine = check_sides(size); !fine) return fine.error();
  const double height = size.height, width = size.width;
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

ImageFit uncropped(ImageSize size) { return {size, {0, 0, size}}; }

Result<ImageFit> fit_image(ImageSize size, const VisionInput& vision, std::int64_t min_pixels,
                           std::int64_t max_pixels) {
  const std::int32_t side = vision.resize.side;
  if (!vision.resize.is_fixed()) {
    const auto resized = smart_resize(size, vision.factor(), min_pixels, max_pixels);
    if (!resized) return resized.error();
    return uncropped(resized.value());
  }
  // Else the longer side could be of any length once the shorter one is enlarged.
  if (auto fine = check_sides(size); !fine) return fine.error();
  const ImageSize square{side, side};
  if (vision.resize.mode == ResizeMode::stretch) return uncropped(square);
  const std::int64_t shorter = std::min(size.width, size.height);
  const auto resized = [&](std::int32_t length) {
    return static_cast<std::int32_t>(std::int64_t{side} * length / shorter);
  };
  const ImageSize whole{resized(size.width), resized(size.height)};
  return ImageFit{whole, {(whole.width - side) / 2, (whole.height - side) / 2, square}};
}

RgbImage resize_image(const RgbImage& image, const ImageFit& fit, PixelFilter filter) {
  const Kernel kernel = kernel_of(filter);
  const ResizedSide columns{fit.size.width, fit.kept.left, fit.kept.size.width};
  const ResizedSide rows{fit.size.height, fit.kept.top, fit.kept.size.height};
  const auto across = [&](const RgbImage& from) {
    return columns.is_all_of(from.width) ? from : resize_across(from, columns, kernel);
  };
  const auto down = [&](const RgbImage& from) {
    return rows.is_all_of(from.height) ? from : resize_down(from, rows, kernel);
  };
  // Bytes are clipped between the passes, so their order shows. Pillow has gone down first since
  // version 13 where the height loses more than twice as many pixels as the width.
  const std::int32_t lost_rows = image.height - fit.size.height;
  const std::int32_t lost_columns = image.width - fit.size.width;
  const bool is_down_first = lost_rows > 0 && lost_rows > 2 * lost_columns;
  return is_down_first ? across(down(image)) : down(across(image));
}

}  // namespace troupe::data
