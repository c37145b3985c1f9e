#include "runtime/data/reading/read_image.hpp"

#include <string>

#include "runtime/data/reading/read_file.hpp"

namespace troupe::data {

Status check_image_size(std::int64_t width, std::int64_t height, std::int64_t pixels_max) {
  const std::string size = std::to_string(width) + " x " + std::to_string(height);
  if (width < 1 || height < 1)
    return Error{Errc::bad_data, "the picture is empty: " + size, "", ""};
  if (width > pixels_max / height)
    return Error{Errc::bad_data,
                 "the picture claims " + size + " pixels, more than the limit of " +
                     std::to_string(pixels_max),
                 "", "shrink it"};
  return Done{};
}

namespace {

Error not_a_picture() {
  return {Errc::bad_data, "the file is neither JPEG nor PNG", "", "convert it"};
}

/// No picture takes more than its pixels do plainly, four channels of 16 bits, but for what its
/// file says of it.
Status check_file(std::string_view head, std::uintmax_t bytes, std::int64_t pixels_max) {
  constexpr std::uintmax_t kBytesPerPixel = 8, kMetadataBytes = 64 << 20;
  if (bytes == 0) return Error{Errc::bad_data, "the file is empty", "", ""};
  if (!is_jpeg(head) && !is_png(head)) return not_a_picture();
  if (bytes <= kBytesPerPixel * static_cast<std::uintmax_t>(pixels_max) + kMetadataBytes)
    return Done{};
  return Error{Errc::bad_data,
               "the file has " + std::to_string(bytes) + " bytes, more than any picture of " +
                   std::to_string(pixels_max) + " pixels, the limit",
               "", "look what it is"};
}

}  // namespace

Result<std::string> read_image_file(const std::filesystem::path& path, std::int64_t pixels_max,
                                    std::uintmax_t bytes_max) {
  const auto accept = [pixels_max](std::string_view head, std::uintmax_t bytes) {
    return check_file(head, bytes, pixels_max);
  };
  return read_file(path, accept, bytes_max);
}

Result<RgbImage> decode_image(std::string_view bytes, std::int64_t pixels_max) {
  if (bytes.empty()) return Error{Errc::bad_data, "the file is empty", "", ""};
  if (is_jpeg(bytes)) return decode_jpeg(bytes, pixels_max);
  if (is_png(bytes)) return decode_png(bytes, pixels_max);
  return not_a_picture();
}

Result<RgbImage> read_image(const std::filesystem::path& path, std::int64_t pixels_max) {
  auto bytes = read_image_file(path, pixels_max);
  if (!bytes) return bytes.error();
  return decode_image(bytes.value(), pixels_max);
}

}  // namespace troupe::data
