// Decodes JPEG and PNG files to RGB as Pillow does.
//
// Pure apart from reading the file; thread-safe.
//
// JPEG: baseline and progressive; grayscale, YCbCr, RGB, CMYK and YCCK (the last two are taken as
// inverted, as Adobe writes them, and converted by (255 - C)(255 - K) / 255 as Pillow does).
// Orientation tags are not applied. PNG: all colour types and depths; 16-bit samples keep their
// high byte; transparency is laid onto white, before any resizing; gamma and colour profiles are
// not applied.

#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>

#include "runtime/data/reading/resize_image.hpp"
#include "runtime/data/reading/rgb_image.hpp"
#include "runtime/vocabulary/result.hpp"

namespace troupe::data {

/// Whether a file that begins so is one.
inline bool is_jpeg(std::string_view bytes) { return bytes.starts_with("\xFF\xD8"); }
inline bool is_png(std::string_view bytes) { return bytes.starts_with("\x89PNG\r\n\x1A\n"); }

/// Decodes the bytes of a JPEG or PNG file; the first bytes decide which.
///
/// Errors:
/// - bad_data: empty, neither JPEG nor PNG, truncated (no end marker counts as truncated), more
/// than
///   `pixels_max` pixels (found before decoding), or what the decoder says.
Result<RgbImage> decode_image(std::string_view bytes, std::int64_t pixels_max);

/// The bytes of a JPEG or PNG file, `bytes_max` of them at most, refused by its first bytes or its
/// size before it is read.
/// Errors: those of `read_file`; bad_data: empty, neither JPEG nor PNG, or larger than any picture
/// of `pixels_max` pixels.
Result<std::string> read_image_file(const std::filesystem::path& path, std::int64_t pixels_max,
                                    std::uintmax_t bytes_max = UINTMAX_MAX);

/// Reads and decodes a file. Errors: as `decode_image` and `read_image_file`.
Result<RgbImage> read_image(const std::filesystem::path& path, std::int64_t pixels_max);

/// The two formats, each with the errors of `decode_image`.
Result<RgbImage> decode_jpeg(std::string_view bytes, std::int64_t pixels_max);
Result<RgbImage> decode_png(std::string_view bytes, std::int64_t pixels_max);

/// Width and height by the first header of a JPEG file, of which `bytes` are the beginning.
/// Errors: bad_data (none of it is in them).
Result<ImageSize> jpeg_size(std::string_view bytes);

/// The check on a picture's announced size, made before memory is taken for it.
/// Errors: bad_data (a side of zero, or more than `pixels_max` pixels).
Status check_image_size(std::int64_t width, std::int64_t height, std::int64_t pixels_max);

}  // namespace troupe::data
