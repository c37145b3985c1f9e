#include "runtime/data/lengths/index_segment.hpp"

#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <catch2/generators/catch_generators_range.hpp>
#include <limits>
#include <random>
#include <thread>
#include <tuple>

#include "temp_folder.hpp"

namespace troupe::data {
namespace {

LengthKey key_of(std::int64_t number) {
  KeyText text("test");
  text.add(number);
  return text.key().value();
}

/// Entries with keys of these numbers, ascending, and what holds their values.
struct Entries {
  explicit Entries(std::vector<std::int64_t> numbers) {
    std::sort(numbers.begin(), numbers.end(), [](auto a, auto b) { return key_of(a) < key_of(b); });
    for (const auto number : numbers) values.push_back(pack(std::vector{number, 2 * number}));
    for (std::size_t i = 0; i < numbers.size(); ++i)
      entries.push_back({key_of(numbers[i]), values[i]});
  }
  std::vector<std::string> values;
  std::vector<IndexEntry> entries;
};

TEST_CASE("SHA-256 is the standard's", "[data]") {
  const auto digest = sha256("abc");  // FIPS 180-4, first example: ba7816bf 8f01cfea ...
  REQUIRE(digest);
  CHECK((*digest)[0] == 0xba);
  CHECK((*digest)[1] == 0x78);
  CHECK((*digest)[31] == 0xad);
}

TEST_CASE("fields of a key do not run into one another", "[data]") {
  const auto key = [](const char* kind, const char* first, const char* second) {
    KeyText text(kind);
    text.add(std::string_view(first));
    text.add(std::string_view(second));
    return text.key();
  };
  CHECK((key("image", "ab", "c") == key("image", "ab", "c")));
  CHECK((key("image", "ab", "c") != key("image", "a", "bc")));
  CHECK((key("image", "ab", "c") != key("clip", "ab", "c")));
  CHECK((key("image", "", "") != key("image", "", "c")));
}

TEST_CASE("a file that is written again has another stamp, whatever its size and time say",
          "[data]") {
  const TempFolder folder;
  const auto path = folder.write("a.jpg", "first");
  const auto before = stamp_of(path);
  REQUIRE(before);
  CHECK(before->bytes == 5);
  const auto time = std::filesystem::last_write_time(path);
  std::this_thread::sleep_for(std::chrono::milliseconds(30));  // More than a file system's step.
  folder.write("a.jpg", "other");
  std::filesystem::last_write_time(path, time);
  const auto after = stamp_of(path);
  REQUIRE(after);
  CHECK(after->bytes == before->bytes);
  CHECK(after->modified_ns == before->modified_ns);
  CHECK((*after != *before));

  CHECK_FALSE(stamp_of(folder.path()));
  CHECK_FALSE(stamp_of(folder.path() / "none"));
  CHECK(is_settled(*after, std::chrono::nanoseconds(0)));
  CHECK_FALSE(is_settled(*after, std::chrono::hours(1)));
  CHECK_FALSE(is_settled({5, 0, std::numeric_limits<std::int64_t>::max()}, std::chrono::hours(0)));
}

TEST_CASE("numbers are packed and unpacked", "[data]") {
  constexpr auto kMax = std::numeric_limits<std::int64_t>::max();
  for (const std::vector<std::int64_t>& numbers :
       {std::vector<std::int64_t>{}, {0}, {127}, {128}, {0, 1, 300, 0}, {kMax, kMax - 1, 5}}) {
    const auto unpacked = unpack(pack(numbers));
    REQUIRE(unpacked);
    CHECK((*unpacked == numbers));
  }
  CHECK(pack(std::vector<std::int64_t>{300}) == "\xAC\x02");  // 300 = 2 * 128 + 44.
  CHECK_FALSE(unpack("\x80"));                                // Goes on, and ends.
  CHECK_FALSE(unpack(std::string(9, '\xFF') + "\x01"));       // More than 63 bits.
}

TEST_CASE("what a file of an index holds is found, and nothing else", "[data][property]") {
  const auto seed = GENERATE(range(0U, 8U));
  std::mt19937 random(seed);
  std::vector<std::int64_t> numbers(seed == 0 ? 0 : random() % 400);
  std::int64_t next = 0;
  for (auto& number : numbers) number = next += 1 + static_cast<std::int64_t>(random() % 3);
  const Entries made(numbers);
  const auto bytes = segment_of(made.entries);
  REQUIRE(bytes.ok());
  const auto segment = IndexSegment::parse(bytes.value());
  REQUIRE(segment.ok());
  REQUIRE(segment.value().size() == numbers.size());
  CHECK(segment.value().bytes() == bytes.value().size());
  for (std::int64_t number = -1; number <= next + 1; ++number) {
    const auto entry = segment.value().find(key_of(number));
    const bool is_there = std::find(numbers.begin(), numbers.end(), number) != numbers.end();
    REQUIRE(entry.has_value() == is_there);
    if (!is_there) continue;
    CHECK((segment.value()[*entry].key == key_of(number)));
    CHECK((unpack(segment.value()[*entry].value) == std::vector{number, 2 * number}));
  }
}

TEST_CASE("a file of an index that is not what was written is refused", "[data][errors]") {
  const Entries made({1, 2, 3, 4, 5});
  const std::string whole = segment_of(made.entries).value();
  for (std::size_t at = 0; at < whole.size(); ++at)
    for (const int mask : {0x01, 0x80, 0xFF}) {
      CAPTURE(at, mask);
      std::string damaged = whole;
      damaged[at] = static_cast<char>(damaged[at] ^ mask);
      const auto parsed = IndexSegment::parse(damaged);
      REQUIRE_FALSE(parsed.ok());
      CHECK(parsed.error().code == Errc::bad_data);
    }
  for (std::size_t size = 0; size < whole.size(); ++size) {
    CAPTURE(size);
    CHECK_FALSE(IndexSegment::parse(whole.substr(0, size)).ok());
  }
  CHECK_FALSE(IndexSegment::parse(whole + "x").ok());
}

TEST_CASE("a file of an index whose order is wrong is refused, though its digest is right",
          "[data][errors]") {
  const Entries made({1, 2, 3});
  const auto& [first, second, third] = std::tie(made.entries[0], made.entries[1], made.entries[2]);
  const auto is_taken = [](const std::vector<IndexEntry>& entries) {
    return IndexSegment::parse(segment_of(entries).value()).ok();
  };
  CHECK(is_taken({first, second, third}));
  CHECK_FALSE(is_taken({third, second, first}));
  CHECK_FALSE(is_taken({first, second, second}));
}

}  // namespace
}  // namespace troupe::data
