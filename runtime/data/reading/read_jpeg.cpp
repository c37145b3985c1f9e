#include <turbojpeg.h>

#include <memory>
#include <string>

#include "runtime/data/reading/read_image.hpp"

namespace troupe::data {
namespace {

Error bad(std::string message) { return {Errc::bad_data, std::move(message), "", ""}; }

/// What the markers of a JPEG file say.
struct JpegHeader {
  std::int64_t width = 0;
  std::int64_t height = 0;
  int components = 0;
};

// The library replaces missing data by grey and only warns, and of several warnings it keeps the
// first. So the file's structure is walked here: a file without its end marker is truncated,
// which is also what Pillow calls an error.
class MarkerWalk {
 public:
  explicit MarkerWalk(std::string_view bytes) : bytes_(bytes) {}

  /// The header, if the file goes on to its end marker.
  Result<JpegHeader> whole() {
    return run([] { return false; });
  }

  /// The header, whatever follows it.
  Result<JpegHeader> beginning() {
    return run([this] { return header_.components != 0; });
  }

 private:
  template <class Enough>
  Result<JpegHeader> run(Enough is_enough) {
    at_ = 2;
    while (!is_enough()) {
      const int marker = next_marker();
      if (marker < 0) return bad("the JPEG file is truncated: it has no end marker");
      if (marker == 0xD9) break;
      if (is_alone(marker)) continue;
      const std::size_t length = number(at_);
      if (at_ + 2 > bytes_.size() || at_ + length > bytes_.size())
        return bad("the JPEG file is truncated: it ends inside a segment");
      if (length < 2) return bad("the JPEG file is damaged: a segment has no length");
      if (is_frame(marker) && header_.components == 0 && length >= 8) read_frame();
      at_ += length;
    }
    if (header_.components == 0) return bad("the JPEG file has no picture in it");
    return header_;
  }

  static bool is_alone(int marker) { return marker == 0x01 || (marker >= 0xD0 && marker <= 0xD8); }
  // SOF0..SOF15 without DHT (C4), JPG (C8) and DAC (CC).
  static bool is_frame(int marker) {
    return marker >= 0xC0 && marker <= 0xCF && marker != 0xC4 && marker != 0xC8 && marker != 0xCC;
  }

  int byte(std::size_t at) const {
    return at < bytes_.size() ? static_cast<unsigned char>(bytes_[at]) : 0;
  }
  std::size_t number(std::size_t at) const {
    return static_cast<std::size_t>(byte(at) << 8 | byte(at + 1));
  }

  /// The code of the next marker, past fill bytes and coded data (where FF 00 stands for FF); -1 at
  /// the end.
  int next_marker() {
    while (true) {
      at_ = bytes_.find('\xFF', at_);
      if (at_ == std::string_view::npos || at_ + 1 >= bytes_.size()) return -1;
      const int code = byte(++at_);
      if (code == 0xFF) continue;
      ++at_;
      if (code != 0) return code;
    }
  }

  void read_frame() {  // length(2) precision(1) height(2) width(2) components(1)
    header_.height = static_cast<std::int64_t>(number(at_ + 3));
    header_.width = static_cast<std::int64_t>(number(at_ + 5));
    header_.components = byte(at_ + 7);
  }

  std::string_view bytes_;
  std::size_t at_ = 0;
  JpegHeader header_;
};

std::uint8_t multiply(unsigned a, unsigned b) {  // a * b / 255, rounded, as Pillow does.
  const unsigned product = a * b + 128;
  return static_cast<std::uint8_t>(((product >> 8) + product) >> 8);
}

/// Inverted CMYK, four bytes a pixel, to RGB. With C' = 255 - C stored, red is C' K' / 255.
std::vector<std::uint8_t> rgb_from_inverted_cmyk(const std::vector<std::uint8_t>& cmyk) {
  std::vector<std::uint8_t> rgb(cmyk.size() / 4 * 3);
  for (std::size_t pixel = 0; pixel < cmyk.size() / 4; ++pixel)
    for (std::size_t channel = 0; channel < 3; ++channel)
      rgb[3 * pixel + channel] = multiply(cmyk[4 * pixel + channel], cmyk[4 * pixel + 3]);
  return rgb;
}

}  // namespace

Result<ImageSize> jpeg_size(std::string_view bytes) {
  auto header = MarkerWalk(bytes).beginning();
  if (!header) return header.error();
  return ImageSize{static_cast<std::int32_t>(header.value().width),
                   static_cast<std::int32_t>(header.value().height)};
}

Result<RgbImage> decode_jpeg(std::string_view bytes, std::int64_t pixels_max) {
  auto header = MarkerWalk(bytes).whole();
  if (!header) return header.error();
  const auto [width, height, components] = header.value();
  if (Status fine = check_image_size(width, height, pixels_max); !fine) return fine.error();

  const std::unique_ptr<void, int (*)(tjhandle)> decoder(tjInitDecompress(), &tjDestroy);
  if (!decoder) return Error{Errc::internal, "turbojpeg has no memory left", "", ""};
  const bool is_cmyk = components == 4;
  std::vector<std::uint8_t> pixels(static_cast<std::size_t>(width * height * (is_cmyk ? 4 : 3)));
  const int failed = tjDecompress2(
      decoder.get(), reinterpret_cast<const unsigned char*>(bytes.data()), bytes.size(),
      pixels.data(), static_cast<int>(width), 0, static_cast<int>(height),
      is_cmyk ? TJPF_CMYK : TJPF_RGB, TJFLAG_ACCURATEDCT | TJFLAG_LIMITSCANS);
  // Warnings (stray bytes, for example) leave a picture that Pillow accepts, too.
  if (failed != 0 && tjGetErrorCode(decoder.get()) != TJERR_WARNING)
    return bad(std::string("the JPEG file cannot be decoded: ") + tjGetErrorStr2(decoder.get()));
  return RgbImage{static_cast<std::int32_t>(width), static_cast<std::int32_t>(height),
                  is_cmyk ? rgb_from_inverted_cmyk(pixels) : std::move(pixels)};
}

}  // namespace troupe::data
