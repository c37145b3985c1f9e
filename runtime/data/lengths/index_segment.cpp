#include "runtime/data/lengths/index_segment.hpp"

#include <algorithm>
#include <cstring>

namespace troupe::data {

namespace {

constexpr std::string_view kMagic = "troupeL1";
constexpr std::size_t kDigest = 32;
constexpr std::size_t kCounts = kMagic.size() + kDigest;  // Where the digest's text begins.
constexpr std::size_t kTable = kCounts + 2 * sizeof(std::uint64_t);
constexpr std::size_t kKey = sizeof(LengthKey);
constexpr std::size_t kRow = kKey + sizeof(std::uint32_t);

template <class Number>
Number number_at(std::string_view bytes, std::size_t at) {
  Number number;
  std::memcpy(&number, bytes.data() + at, sizeof number);
  return number;
}

template <class Number>
void append(std::string& bytes, Number number) {
  char raw[sizeof number];
  std::memcpy(raw, &number, sizeof number);
  bytes.append(raw, sizeof number);
}

Error bad(std::string message) { return {Errc::bad_data, std::move(message), "", ""}; }

}  // namespace

std::string pack(std::span<const std::int64_t> numbers) {
  std::string value;
  for (const std::int64_t number : numbers) {
    auto rest = static_cast<std::uint64_t>(number);
    for (; rest >= 0x80; rest >>= 7) value += static_cast<char>((rest & 0x7F) | 0x80);
    value += static_cast<char>(rest);
  }
  return value;
}

std::optional<std::vector<std::int64_t>> unpack(std::string_view value) {
  constexpr int kShiftMax = 56;  // Nine bytes hold 63 bits: no number is negative.
  std::vector<std::int64_t> numbers;
  std::uint64_t number = 0;
  int shift = 0;
  for (const char byte : value) {
    if (shift > kShiftMax) return std::nullopt;
    const auto bits = static_cast<unsigned char>(byte);
    number |= std::uint64_t{bits & 0x7FU} << shift;
    shift += 7;
    if ((bits & 0x80) != 0) continue;
    numbers.push_back(static_cast<std::int64_t>(number));
    number = 0;
    shift = 0;
  }
  if (shift != 0) return std::nullopt;
  return numbers;
}

std::uint32_t IndexSegment::begin_of(std::size_t entry) const {
  return number_at<std::uint32_t>(bytes_, kTable + entry * kRow + kKey);
}

IndexEntry IndexSegment::operator[](std::size_t entry) const {
  IndexEntry made;
  std::memcpy(made.key.data(), bytes_.data() + kTable + entry * kRow, kKey);
  const auto values = std::string_view(bytes_).substr(kTable + count_ * kRow);
  const std::size_t begin = begin_of(entry);
  const std::size_t end = entry + 1 < count_ ? begin_of(entry + 1) : values.size();
  made.value = values.substr(begin, end - begin);
  return made;
}

std::optional<std::size_t> IndexSegment::find(const LengthKey& key) const {
  std::size_t low = 0, high = count_;
  while (low < high) {
    const std::size_t middle = low + (high - low) / 2;
    const int order = std::memcmp(bytes_.data() + kTable + middle * kRow, key.data(), kKey);
    if (order == 0) return middle;
    if (order < 0)
      low = middle + 1;
    else
      high = middle;
  }
  return std::nullopt;
}

Result<IndexSegment> IndexSegment::parse(std::string bytes) {
  if (bytes.size() < kTable) return bad("it is cut short");
  if (!bytes.starts_with(kMagic)) return bad("it does not begin as an index of lengths");
  const std::string_view text = std::string_view(bytes).substr(kCounts);
  const auto digest = sha256(text);
  if (!digest || std::memcmp(digest->data(), bytes.data() + kMagic.size(), kDigest) != 0)
    return bad("its digest is another one");
  IndexSegment segment;
  const auto count = number_at<std::uint64_t>(text, 0);
  const auto values = number_at<std::uint64_t>(text, sizeof(std::uint64_t));
  const std::size_t rest = bytes.size() - kTable;
  if (count > rest / kRow || rest - count * kRow != values) return bad("its sizes are wrong");
  segment.count_ = count;
  segment.bytes_ = std::move(bytes);
  // Looked at once here, so that `find` and `[]` need not.
  for (std::size_t entry = 0; entry < segment.count_; ++entry) {
    const std::uint64_t begin = segment.begin_of(entry);
    const std::uint64_t before = entry == 0 ? 0 : segment.begin_of(entry - 1);
    if (begin < before || begin > values || (entry == 0 && begin != 0))
      return bad("its values are out of order");
    if (entry > 0 && std::memcmp(segment.bytes_.data() + kTable + (entry - 1) * kRow,
                                 segment.bytes_.data() + kTable + entry * kRow, kKey) >= 0)
      return bad("its keys are out of order");
  }
  return segment;
}

Result<std::string> segment_of(std::span<const IndexEntry> entries) {
  std::size_t values = 0;
  for (const IndexEntry& entry : entries) values += entry.value.size();
  std::string text;
  text.reserve(2 * sizeof(std::uint64_t) + entries.size() * kRow + values);
  append<std::uint64_t>(text, entries.size());
  append<std::uint64_t>(text, values);
  std::uint32_t begin = 0;
  for (const IndexEntry& entry : entries) {
    text.append(reinterpret_cast<const char*>(entry.key.data()), kKey);
    append(text, begin);
    begin += static_cast<std::uint32_t>(entry.value.size());
  }
  for (const IndexEntry& entry : entries) text += entry.value;
  const auto digest = sha256(text);
  if (!digest) return Error{Errc::internal, "no SHA-256 can be computed", "", ""};
  std::string bytes(kMagic);
  bytes.append(reinterpret_cast<const char*>(digest->data()), kDigest);
  bytes += text;
  return bytes;
}

}  // namespace troupe::data
