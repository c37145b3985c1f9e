// A decoded picture: 8-bit RGB, row by row. A value.

#pragma once

#include <cstdint>
#include <vector>

namespace troupe::data {

/// REQUIRES: rgb.size() == 3 * width * height.
struct RgbImage {
  std::int32_t width = 0;
  std::int32_t height = 0;
  std::vector<std::uint8_t> rgb;  ///< Red, green, blue of each pixel, top row first.

  friend bool operator==(const RgbImage&, const RgbImage&) = default;
};

}  // namespace troupe::data
