#include "engine/execution/content_packing.hpp"

#include <ATen/ops/empty.h>

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "engine/execution/packing.hpp"
#include "runtime/vocabulary/sample_content.hpp"

namespace troupe::engine {

namespace {

using data::DecodedSample;
using data::TokenId;

static_assert(sizeof(float) == kContentValueBytes && sizeof(TokenId) == kContentTokenBytes &&
              sizeof(std::uint8_t) == kContentPixelBytes);

constexpr const char* kOtherContent = "has other content than planned";
constexpr const char* kNoPicture = "has patches that were cut from no picture";

/// Items of a sample that a unit is about.
struct ItemRange {
  std::size_t first = 0;
  std::size_t count = 0;
};

ItemRange items_of(const SampleUnits& units, std::int32_t unit, ModuleId encoder) {
  if (const SamplePiece* piece = units.piece(unit))
    return {static_cast<std::size_t>(piece->first), static_cast<std::size_t>(piece->count)};
  return {0, units.shape(unit).items(encoder)->size()};
}

/// REQUIRES: the sample has items for it.
const ModuleMedia& media_of(const SampleShape& sample, ModuleId encoder) {
  return *std::find_if(sample.media.begin(), sample.media.end(),
                       [&](const ModuleMedia& media) { return media.module == encoder; });
}

/// Values that the encoder reads of an item.
std::size_t value_count(const ModuleMedia& media, const MediaShape& item) {
  return static_cast<std::size_t>(item.input_rows) * static_cast<std::size_t>(media.columns);
}

/// Writes one thing after the other, as far as there is room.
class Writer {
 public:
  Writer(std::byte* out, std::size_t size) : out_(out), left_(size) {}

  template <class Value>
  bool put(std::span<const Value> values) {
    if (values.size_bytes() > left_) return false;
    if (!values.empty()) std::memcpy(out_, values.data(), values.size_bytes());
    out_ += values.size_bytes();
    left_ -= values.size_bytes();
    return true;
  }
  bool is_full() const { return left_ == 0; }

 private:
  std::byte* out_;
  std::size_t left_;
};

/// REQUIRES: as many values are left as are asked for.
class Reader {
 public:
  explicit Reader(const std::byte* in) : in_(in) {}

  template <class Value>
  std::vector<Value> take(std::size_t count) {
    std::vector<Value> values(count);
    if (count > 0) std::memcpy(values.data(), in_, count * sizeof(Value));
    in_ += count * sizeof(Value);
    return values;
  }

 private:
  const std::byte* in_;
};

/// A token that is not trained is its complement, which is below zero.
std::vector<TokenId> packed_text(const data::EncodedText& text) {
  std::vector<TokenId> packed(text.tokens);
  for (std::size_t i = 0; i < packed.size(); ++i)
    if (text.labels[i] == data::kIgnoreLabel) packed[i] = ~packed[i];
  return packed;
}

data::EncodedText unpacked_text(std::vector<TokenId> packed, const MarkerCounts& markers) {
  data::EncodedText text;
  text.image_markers = markers.images;
  text.audio_markers = markers.audio;
  for (TokenId& token : packed) {
    const bool is_trained = token >= 0;
    if (!is_trained) token = ~token;
    text.labels.push_back(is_trained ? token : data::kIgnoreLabel);
  }
  text.tokens = std::move(packed);
  return text;
}

/// Why something cannot be sent; null: it was written.
using Refusal = const char*;

/// Of the encoder at this place among those of pictures.
PixelScale scale_at(std::span<const PixelScale> scales, std::size_t place) {
  return place < scales.size() ? scales[place] : PixelScale{};
}

Refusal put_item(const data::ImagePatches& picture, const ModuleMedia& media,
                 const MediaShape& item, const PixelScale& scale, Writer& writer) {
  if (picture.patches.size() != value_count(media, item)) return kOtherContent;
  if (media_form(media) == MediaForm::values)
    return writer.put(std::span<const float>(picture.patches)) ? nullptr : kOtherContent;
  const auto pixels = data::patch_pixels(picture, media.equal_frames, scale);
  if (!pixels) return kNoPicture;
  return writer.put(std::span<const std::uint8_t>(*pixels)) ? nullptr : kOtherContent;
}

Refusal put_item(const data::AudioWindow& window, const ModuleMedia& media, const MediaShape& item,
                 const PixelScale& /*of pictures*/, Writer& writer) {
  const bool is_planned = window.mel.size() == value_count(media, item);
  return is_planned && writer.put(std::span<const float>(window.mel)) ? nullptr : kOtherContent;
}

template <class Item>
Refusal put_items(const std::vector<std::vector<Item>>& encoders, std::size_t place,
                  const ItemRange& range, const ModuleMedia& media, const PixelScale& scale,
                  Writer& writer) {
  if (place >= encoders.size() || range.first + range.count > encoders[place].size())
    return kOtherContent;
  for (std::size_t i = range.first; i < range.first + range.count; ++i)
    if (const Refusal why = put_item(encoders[place][i], media, media.items[i], scale, writer))
      return why;
  return nullptr;
}

Refusal put(const Delivery& delivery, const SampleUnits& units, std::int32_t unit,
            const DecodedSample& content, std::span<const PixelScale> scales, Writer& writer) {
  if (!delivery.encoder.valid())
    return writer.put(std::span<const TokenId>(packed_text(content.text))) ? nullptr
                                                                           : kOtherContent;
  const SampleShape& sample = units.shape(units.sample_of(unit));
  const ModuleMedia& media = media_of(sample, delivery.encoder);
  const ItemRange range = items_of(units, unit, delivery.encoder);
  const std::size_t place = place_in_medium(sample, delivery.encoder);
  const PixelScale scale = scale_at(scales, place);
  return is_vision(media.items) ? put_items(content.images, place, range, media, scale, writer)
                                : put_items(content.audio, place, range, media, scale, writer);
}

data::ImagePatches take_picture(const ModuleMedia& media, const MediaShape& item,
                                const PixelScale& scale, Reader& reader) {
  const std::size_t values = value_count(media, item);
  if (media_form(media) == MediaForm::values)
    return {reader.take<float>(values), item.grid_height, item.grid_width};
  const auto pixels =
      reader.take<std::uint8_t>(values / static_cast<std::size_t>(media.equal_frames));
  return data::patches_of(pixels, item.grid_height, item.grid_width, media.equal_frames, scale);
}

/// Media of one encoder; items that did not come are empty.
void take_media(const ModuleMedia& media, std::size_t place, const ItemRange& range,
                const PixelScale& scale, Reader& reader, DecodedSample& content) {
  if (is_vision(media.items)) {
    content.images.resize(place + 1);
    content.images[place].resize(media.items.size());
  } else {
    content.audio.resize(place + 1);
    content.audio[place].resize(media.items.size());
  }
  for (std::size_t i = range.first; i < range.first + range.count; ++i) {
    const MediaShape& item = media.items[i];
    if (is_vision(media.items))
      content.images[place][i] = take_picture(media, item, scale, reader);
    else
      content.audio[place][i] = {reader.take<float>(value_count(media, item)), item.input_rows,
                                 item.marker};
  }
}

}  // namespace

Result<at::Tensor> pack_content(const Delivery& delivery, const SampleUnits& units,
                                const SampleStore& store, std::span<const PixelScale> scales) {
  at::Tensor packed = at::empty({delivery.bytes.count()}, at::kByte);
  Writer writer(static_cast<std::byte*>(packed.data_ptr()), packed.nbytes());
  const auto wrong = [&](std::int32_t unit, const char* why) {
    return Error{
        Errc::internal, "sample '" + units.shape(units.sample_of(unit)).id + "' " + why, {}, {}};
  };
  for (const std::int32_t unit : delivery.samples) {
    const auto content = store.find(units.shape(unit).position);
    if (!content) return wrong(unit, "is to be sent by a node that did not decode it");
    if (const Refusal why = put(delivery, units, unit, *content, scales, writer))
      return wrong(unit, why);
  }
  if (!writer.is_full()) return wrong(delivery.samples.back(), "has less content than planned");
  return packed;
}

Status unpack_content(const Delivery& delivery, const SampleUnits& units, const at::Tensor& packed,
                      SampleStore& store, std::span<const PixelScale> scales) {
  const Bytes planned = content_bytes(delivery, units);
  const Bytes came{static_cast<std::int64_t>(packed.nbytes())};
  if (came != planned)
    return Error{Errc::internal,
                 "content of sample '" + units.shape(units.sample_of(delivery.samples.front())).id +
                     "' came with " + std::to_string(came.count()) + " bytes instead of " +
                     std::to_string(planned.count()),
                 {},
                 {}};
  Reader reader(static_cast<const std::byte*>(packed.const_data_ptr()));
  for (const std::int32_t unit : delivery.samples) {
    const SampleShape& sample = units.shape(units.sample_of(unit));
    DecodedSample content;
    content.id = sample.id;
    content.position = sample.position;
    content.trained_tokens = sample.trained_tokens;
    if (!delivery.encoder.valid()) {
      const auto tokens = static_cast<std::size_t>(encoded_tokens(sample));
      content.text = unpacked_text(reader.take<TokenId>(tokens), marker_counts(sample));
    }
    for (const ModuleMedia& media : sample.media)
      if (media.module == delivery.encoder) {
        const std::size_t place = place_in_medium(sample, media.module);
        take_media(media, place, items_of(units, unit, media.module), scale_at(scales, place),
                   reader, content);
      }
    store.add(std::move(content));
  }
  return Done{};
}

}  // namespace troupe::engine
