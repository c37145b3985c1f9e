#include "runtime/data/made/demo_media.hpp"

#include <png.h>
#include <sndfile.h>
#include <turbojpeg.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <fstream>
#include <memory>
#include <numbers>
#include <string>

namespace troupe::data {
namespace {

Error cannot_write(const std::filesystem::path& path, const std::string& why) {
  return {Errc::io_failed, "cannot write the file: " + why, path.string(),
          "check the folder's permissions and the space left"};
}

Status write_png_pixels(const std::filesystem::path& path, const void* pixels, std::int32_t width,
                        std::int32_t height, png_uint_32 format) {
  png_image png{};
  png.version = PNG_IMAGE_VERSION;
  png.width = static_cast<png_uint_32>(width);
  png.height = static_cast<png_uint_32>(height);
  png.format = format;
  if (png_image_write_to_file(&png, path.c_str(), 0, pixels, 0, nullptr) == 0)
    return cannot_write(path, png.message);
  return Done{};
}

template <class Visit>
void for_each_pixel(const DemoPicture& picture, Visit visit) {
  for (std::int32_t y = 0; y < picture.height; ++y)
    for (std::int32_t x = 0; x < picture.width; ++x) visit(covers(picture, x, y));
}

}  // namespace

DemoWord random_word(Random& random) {
  constexpr std::string_view kNumbers[] = {"zero", "one", "two",   "three", "four",
                                           "five", "six", "seven", "eight"};
  const std::size_t colours = kDemoColours.size();
  const std::size_t pick = random.below_unbiased(colours + kDemoShapes.size());
  const auto word = pick < colours ? kDemoColours[pick].name : kDemoShapes[pick - colours];
  return {word, kNumbers[word.size()]};
}

bool covers(const DemoPicture& picture, std::int32_t x, std::int32_t y) {
  const std::int32_t dx = std::abs(x - picture.center_x), dy = y - picture.center_y;
  const std::int32_t radius = picture.radius;
  if (dx > radius || std::abs(dy) > radius) return false;
  switch (picture.shape) {
    case DemoShape::circle: return dx * dx + dy * dy <= radius * radius;
    case DemoShape::square: return true;
    case DemoShape::triangle: return 2 * dx <= radius + dy;  // Tip up.
    case DemoShape::cross: return 3 * dx <= radius || 3 * std::abs(dy) <= radius;
  }
  return false;
}

RgbImage draw(const DemoPicture& picture) {
  RgbImage image{picture.width, picture.height, {}};
  const auto& colour = kDemoColours[picture.colour].rgb;
  for_each_pixel(picture, [&](bool is_inside) {
    const auto& pixel = is_inside ? colour : picture.background;
    image.rgb.insert(image.rgb.end(), pixel.begin(), pixel.end());
  });
  return image;
}

std::vector<float> play(std::span<const std::size_t> tones, std::int32_t rate) {
  const auto tone_samples = rate / 5, gap_samples = rate / 20, ramp_samples = rate / 100;
  std::vector<float> samples;
  for (const std::size_t tone : tones) {
    const double step = 2 * std::numbers::pi * kDemoTones[tone].hertz / rate;
    for (std::int32_t i = 0; i < tone_samples; ++i) {
      const double ramp = std::min({1.0, i / static_cast<double>(ramp_samples),
                                    (tone_samples - i) / static_cast<double>(ramp_samples)});
      samples.push_back(static_cast<float>(0.5 * ramp * std::sin(step * i)));
    }
    samples.resize(samples.size() + static_cast<std::size_t>(gap_samples));
  }
  return samples;
}

Status write_jpeg(const std::filesystem::path& path, const RgbImage& image) {
  const std::unique_ptr<void, int (*)(tjhandle)> encoder(tjInitCompress(), &tjDestroy);
  unsigned char* bytes = nullptr;
  unsigned long size = 0;
  const int failed = tjCompress2(encoder.get(), image.rgb.data(), image.width, 0, image.height,
                                 TJPF_RGB, &bytes, &size, TJSAMP_420, 90, TJFLAG_ACCURATEDCT);
  const std::unique_ptr<unsigned char, void (*)(unsigned char*)> owner(bytes, &tjFree);
  if (failed != 0) return cannot_write(path, tjGetErrorStr2(encoder.get()));
  std::ofstream file(path, std::ios::binary);
  file.write(reinterpret_cast<const char*>(bytes), static_cast<std::streamsize>(size));
  file.close();
  if (!file) return cannot_write(path, "the disk is full or the folder is not writable");
  return Done{};
}

Status write_png(const std::filesystem::path& path, const RgbImage& image) {
  return write_png_pixels(path, image.rgb.data(), image.width, image.height, PNG_FORMAT_RGB);
}

Status write_cut_out_png(const std::filesystem::path& path, const DemoPicture& picture) {
  std::vector<std::uint8_t> rgba;
  const auto& colour = kDemoColours[picture.colour].rgb;
  for_each_pixel(picture, [&](bool is_inside) {
    rgba.insert(rgba.end(), colour.begin(), colour.end());
    rgba.push_back(is_inside ? 255 : 0);
  });
  return write_png_pixels(path, rgba.data(), picture.width, picture.height, PNG_FORMAT_RGBA);
}

Status write_wav(const std::filesystem::path& path, std::span<const float> samples,
                 std::int32_t rate, std::int32_t channels) {
  SF_INFO info{};
  info.samplerate = rate;
  info.channels = channels;
  info.format = SF_FORMAT_WAV | SF_FORMAT_PCM_16;
  const std::unique_ptr<SNDFILE, int (*)(SNDFILE*)> file(sf_open(path.c_str(), SFM_WRITE, &info),
                                                         &sf_close);
  if (!file) return cannot_write(path, sf_strerror(nullptr));
  std::vector<float> frames;
  for (const float sample : samples)
    frames.insert(frames.end(), static_cast<std::size_t>(channels), sample);
  const auto count = std::ssize(samples);
  if (sf_writef_float(file.get(), frames.data(), count) != count)
    return cannot_write(path, sf_strerror(file.get()));
  return Done{};
}

}  // namespace troupe::data
