#include "runtime/data/read_image.hpp"

#include <string>

#include "runtime/data/read_file.hpp"

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

Result<RgbImage> decode_image(std::string_view bytes, std::int64_t pixels_max) {
  if (bytes.empty()) return Error{Errc::bad_data, "the file is empty", "", ""};
  if (bytes.starts_with("\xFF\xD8")) return decode_jpeg(bytes, pixels_max);
  if (bytes.starts_with("\x89PNG\r\n\x1A\n")) return decode_png(bytes, pixels_max);
  return Error{Errc::bad_data, "the file is neither JPEG nor PNG", "", "convert it"};
}

Result<RgbImage> read_image(const std::filesystem::path& path, std::int64_t pixels_max) {
  auto bytes = read_file(path);
  if (!bytes) return bytes.error();
  return decode_image(bytes.value(), pixels_max);
}

}  // namespace troupe::data
