#include <png.h>

#include <csetjmp>
#include <cstring>
#include <string>
#include <utility>

#include "runtime/data/reading/read_image.hpp"

namespace troupe::data {
namespace {

// libpng reports errors by longjmp. The functions that call setjmp therefore hold no object with a
// destructor: all memory is owned by PngDecoder or by the caller.
class PngDecoder {
 public:
  explicit PngDecoder(std::string_view bytes) : bytes_(bytes) {
    png_ = png_create_read_struct(PNG_LIBPNG_VER_STRING, this, &on_error, &on_warning);
    if (png_ != nullptr) info_ = png_create_info_struct(png_);
  }
  ~PngDecoder() { png_destroy_read_struct(&png_, &info_, nullptr); }
  PngDecoder(const PngDecoder&) = delete;
  PngDecoder& operator=(const PngDecoder&) = delete;

  bool is_ready() const { return info_ != nullptr; }
  const char* message() const { return message_; }
  std::int64_t width() const { return png_get_image_width(png_, info_); }
  std::int64_t height() const { return png_get_image_height(png_, info_); }
  /// Of a pixel, once the header is read: 3, or 4 with alpha; a byte each.
  std::size_t channels() const { return png_get_channels(png_, info_); }

  /// Reads up to the pixels and asks for RGB, or RGBA where the picture can be seen through.
  bool read_header() {
    if (setjmp(png_jmpbuf(png_)) != 0) return false;
    png_set_read_fn(png_, this, &read_bytes);
    png_read_info(png_, info_);
    png_set_expand(png_);    // Palettes, 1..4 bits; colour keys and their like become alpha.
    png_set_strip_16(png_);  // The high byte, as Pillow takes it.
    png_set_gray_to_rgb(png_);
    png_set_interlace_handling(png_);
    png_read_update_info(png_, info_);
    return true;
  }

  /// Reads all rows and the rest of the file. REQUIRES: rows for height() x channels() * width()
  /// bytes.
  bool read_rows(png_bytepp rows) {
    if (setjmp(png_jmpbuf(png_)) != 0) return false;
    png_read_image(png_, rows);
    png_read_end(png_, nullptr);
    return true;
  }

 private:
  static void read_bytes(png_structp png, png_bytep out, std::size_t size) {
    auto* self = static_cast<PngDecoder*>(png_get_io_ptr(png));
    if (size > self->bytes_.size()) png_error(png, "the file is truncated");
    std::memcpy(out, self->bytes_.data(), size);
    self->bytes_.remove_prefix(size);
  }
  [[noreturn]] static void on_error(png_structp png, png_const_charp text) {
    auto* self = static_cast<PngDecoder*>(png_get_error_ptr(png));
    std::strncpy(self->message_, text, sizeof self->message_ - 1);
    png_longjmp(png, 1);
  }
  static void on_warning(png_structp, png_const_charp) {}

  std::string_view bytes_;
  char message_[200] = {};
  png_structp png_ = nullptr;
  png_infop info_ = nullptr;
};

Error bad(const PngDecoder& decoder) {
  return {Errc::bad_data, std::string("the PNG file cannot be decoded: ") + decoder.message(), "",
          ""};
}

/// The colour seen through `alpha` on white, rounded as Pillow's paste with a mask does.
std::uint8_t on_white(unsigned colour, unsigned alpha) {
  const unsigned sum = colour * alpha + 255 * (255 - alpha) + 128;
  return static_cast<std::uint8_t>(((sum >> 8) + sum) >> 8);
}

std::vector<std::uint8_t> rgb_on_white(const std::vector<std::uint8_t>& rgba) {
  std::vector<std::uint8_t> rgb(rgba.size() / 4 * 3);
  for (std::size_t pixel = 0; pixel < rgba.size() / 4; ++pixel)
    for (std::size_t channel = 0; channel < 3; ++channel)
      rgb[3 * pixel + channel] = on_white(rgba[4 * pixel + channel], rgba[4 * pixel + 3]);
  return rgb;
}

}  // namespace

Result<RgbImage> decode_png(std::string_view bytes, std::int64_t pixels_max) {
  PngDecoder decoder(bytes);
  if (!decoder.is_ready()) return Error{Errc::internal, "libpng has no memory left", "", ""};
  if (!decoder.read_header()) return bad(decoder);
  if (Status fine = check_image_size(decoder.width(), decoder.height(), pixels_max); !fine)
    return fine.error();

  const auto width = static_cast<std::size_t>(decoder.width());
  const auto height = static_cast<std::size_t>(decoder.height());
  const std::size_t line = decoder.channels() * width;
  std::vector<std::uint8_t> pixels(line * height);
  std::vector<png_bytep> rows(height);
  for (std::size_t y = 0; y < height; ++y) rows[y] = pixels.data() + line * y;
  if (!decoder.read_rows(rows.data())) return bad(decoder);
  return RgbImage{static_cast<std::int32_t>(width), static_cast<std::int32_t>(height),
                  decoder.channels() == 4 ? rgb_on_white(pixels) : std::move(pixels)};
}

}  // namespace troupe::data
