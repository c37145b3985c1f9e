#include "runtime/data/lengths/length_index.hpp"

#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <catch2/generators/catch_generators_range.hpp>
#include <fstream>
#include <map>
#include <memory>
#include <mutex>
#include <random>
#include <thread>

#include "golden.hpp"
#include "temp_folder.hpp"

namespace troupe::data {
namespace {

using Numbers = std::vector<std::int64_t>;

const std::vector<std::string> kOne{"one"};

LengthKey key_of(std::int64_t number) {
  KeyText text("test");
  text.add(number);
  return text.key().value();
}

LengthIndexOptions in(const TempFolder& folder) {
  LengthIndexOptions options;
  options.folder = folder.path() / "lengths";
  return options;
}

std::vector<std::filesystem::path> files_of(const TempFolder& folder) {
  std::vector<std::filesystem::path> files;
  std::error_code none;
  for (const auto& entry : std::filesystem::directory_iterator(folder.path() / "lengths", none))
    files.push_back(entry.path());
  std::sort(files.begin(), files.end());
  return files;
}

std::uintmax_t bytes_of(const std::vector<std::filesystem::path>& files) {
  std::uintmax_t bytes = 0;
  for (const auto& file : files) bytes += std::filesystem::file_size(file);
  return bytes;
}

/// Leaves a file with one length.
void keep(const TempFolder& folder, std::int64_t key, const Numbers& numbers) {
  LengthIndex index(in(folder), kOne);
  index.put(0, key_of(key), numbers);
  index.save();
}

TEST_CASE("lengths that were saved are found by the next one", "[data]") {
  const TempFolder folder;
  const std::vector<std::string> names{"one", "", "two"};
  {
    LengthIndex index(in(folder), names);
    CHECK(files_of(folder).empty());
    index.put(0, key_of(1), Numbers{640, 480});
    index.put(1, key_of(1), Numbers{9});  // Of a source that is not here: kept by nobody.
    index.put(2, key_of(1), Numbers{16000});
    CHECK((index.find(0, key_of(1)) == Numbers{640, 480}));
    index.save();
    index.put(2, key_of(2), Numbers{16000});
  }
  CHECK(files_of(folder).size() == 2);
  LengthIndex index(in(folder), names);
  CHECK((index.find(0, key_of(1)) == Numbers{640, 480}));
  CHECK((index.find(2, key_of(1)) == Numbers{16000}));
  CHECK_FALSE(index.find(0, key_of(2)));
  CHECK_FALSE(index.find(1, key_of(1)));
  CHECK_FALSE(index.find(2, key_of(2)));  // Was never saved.
  CHECK(index.take_notes().empty());
  // A job that names its sources in another order, or only some of them, finds the same.
  LengthIndex other(in(folder), std::vector<std::string>{"two", "one"});
  CHECK((other.find(1, key_of(1)) == Numbers{640, 480}));
}

TEST_CASE("nothing is written where nothing was put", "[data]") {
  const TempFolder folder;
  LengthIndex(in(folder), kOne).save();
  CHECK_FALSE(std::filesystem::exists(folder.path() / "lengths"));
}

TEST_CASE("of a length that was put again the newest counts, whichever files it lies in",
          "[data][property]") {
  // Three processes take turns; sizes differ so that files are merged in every way.
  std::mt19937 random(GENERATE(range(0U, 20U)));
  const TempFolder folder;
  std::vector<std::unique_ptr<LengthIndex>> indexes;
  for (int i = 0; i < 3; ++i) indexes.push_back(std::make_unique<LengthIndex>(in(folder), kOne));
  std::map<std::int64_t, std::int64_t> model;
  // Large ones are not merged with every small one: 100 numbers to a value, 140 bytes.
  const auto value = [](std::int64_t number) { return Numbers(100, number); };
  for (std::int64_t turn = 0; turn < 30; ++turn) {
    LengthIndex& index = *indexes[random() % 3];
    const std::int64_t count =
        random() % 4 == 0 ? 600 : 1 + static_cast<std::int64_t>(random() % 9);
    for (std::int64_t i = 0; i < count; ++i) {
      const auto key = static_cast<std::int64_t>(random() % 1500);
      index.put(0, key_of(key), value(model[key] = 1000 + turn));
    }
    index.save();
  }
  indexes.push_back(std::make_unique<LengthIndex>(in(folder), kOne));
  for (const auto& [key, number] : model)
    REQUIRE((indexes.back()->find(0, key_of(key)) == value(number)));
  CHECK(indexes.back()->take_notes().empty());
}

TEST_CASE("an index has few files, however often it was saved", "[data]") {
  const TempFolder folder;
  std::size_t most = 0;
  LengthIndex index(in(folder), kOne);
  for (std::int64_t key = 0; key < 300; ++key) {
    index.put(0, key_of(key), Numbers(1000, 5));  // A kilobyte each.
    index.save();
    most = std::max(most, files_of(folder).size());
  }
  CHECK(most <= 5);  // Each holds more than all newer ones do: 1, 65, 130, 260 KiB.
  LengthIndex next(in(folder), kOne);
  for (std::int64_t key = 0; key < 300; ++key) REQUIRE(next.find(0, key_of(key)));
}

TEST_CASE("a damaged index is told, removed and made anew", "[data][errors]") {
  const TempFolder folder;
  keep(folder, 1, {640, 480});
  REQUIRE(files_of(folder).size() == 1);
  const auto file = files_of(folder).front();
  const std::string whole = file_bytes(file);
  std::string damaged = whole;
  const int kind = GENERATE(0, 1, 2, 3);
  if (kind == 0) damaged.back() ^= 0x10;  // Of a value: all else is in order.
  if (kind == 1) damaged.resize(whole.size() - 1);
  if (kind == 2) damaged.clear();
  if (kind == 3) damaged = "no index at all, but as long as one could be, or even longer than that";
  CAPTURE(kind);
  std::ofstream(file, std::ios::binary) << damaged;

  LengthIndex index(in(folder), kOne);
  CHECK_FALSE(index.find(0, key_of(1)));
  const auto notes = index.take_notes();
  REQUIRE(notes.size() == 1);
  CHECK(notes.front().find(file.string()) != std::string::npos);
  CHECK(notes.front().find("read anew") != std::string::npos);
  CHECK(files_of(folder).empty());
  index.put(0, key_of(1), Numbers{640, 480});
  index.save();
  CHECK(index.take_notes().empty());
  CHECK((LengthIndex(in(folder), kOne).find(0, key_of(1)) == Numbers{640, 480}));
}

TEST_CASE("many write one index at once, and nothing is lost or torn", "[data]") {
  const TempFolder folder;
  constexpr std::int64_t kWriters = 4, kSaves = 40;
  std::mutex mutex;
  std::vector<std::string> told;
  {
    std::vector<std::jthread> threads;
    for (std::int64_t writer = 0; writer < kWriters; ++writer)
      threads.emplace_back([&, writer] {
        LengthIndex index(in(folder), kOne);  // As a process of its own: all they share are files.
        for (std::int64_t save = 0; save < kSaves; ++save) {
          const std::int64_t number = writer * kSaves + save;
          index.put(0, key_of(number), Numbers(500, number));
          index.save();
        }
        const std::lock_guard lock(mutex);
        for (const auto& note : index.take_notes()) told.push_back(note);
      });
  }
  LengthIndex index(in(folder), kOne);
  for (std::int64_t number = 0; number < kWriters * kSaves; ++number)
    REQUIRE((index.find(0, key_of(number)) == Numbers(500, number)));
  CHECK(index.take_notes().empty());
  CHECK(told.empty());
}

TEST_CASE("what another process has saved is found without opening the index again", "[data]") {
  const TempFolder folder;
  LengthIndex first(in(folder), kOne), second(in(folder), kOne);
  first.put(0, key_of(1), Numbers{1});
  first.save();
  CHECK_FALSE(second.find(0, key_of(1)));
  std::this_thread::sleep_for(std::chrono::milliseconds(1100));
  second.maintain();
  CHECK((second.find(0, key_of(1)) == Numbers{1}));
}

TEST_CASE("what a killed process has left unfinished is passed over", "[data]") {
  const TempFolder folder;
  keep(folder, 1, {1});
  const auto file = files_of(folder).front();
  const auto unfinished = file.string() + ".unfinished";
  std::ofstream(unfinished) << "half of it";
  LengthIndex index(in(folder), kOne);
  CHECK(index.find(0, key_of(1)));
  CHECK(index.take_notes().empty());
  CHECK(std::filesystem::exists(unfinished));  // Somebody may be at it.
  std::filesystem::last_write_time(
      unfinished, std::filesystem::file_time_type::clock::now() - std::chrono::hours(2));
  index.save();
  CHECK_FALSE(std::filesystem::exists(unfinished));
}

TEST_CASE("an index is bounded, and keeps what is used", "[data]") {
  const TempFolder folder;
  auto options = in(folder);
  options.source_bytes_max = 64 << 10;
  constexpr std::int64_t kUsed = 100;
  for (std::int64_t round = 0; round < 10; ++round) {
    LengthIndex index(options, kOne);
    if (round > 0)
      for (std::int64_t key = 0; key < kUsed; ++key) REQUIRE(index.find(0, key_of(key)));
    for (std::int64_t key = 0; key < (round == 0 ? kUsed : 1000); ++key)
      index.put(0, key_of(1000 * round + key), Numbers{640, 480});
    index.save();
    CHECK(bytes_of(files_of(folder)) <= options.source_bytes_max + 1024);
  }
}

TEST_CASE("a folder of indexes is bounded: those that were written longest ago go", "[data]") {
  const TempFolder folder;
  auto options = in(folder);
  options.folder_bytes_max = 5000;
  const auto fill = [&](const std::string& name) {
    LengthIndex index(options, std::vector{name});
    for (std::int64_t key = 0; key < 60; ++key) index.put(0, key_of(key), Numbers{640, 480});
    index.save();
  };
  const auto knows = [&](const std::string& name) {
    return LengthIndex(options, std::vector{name}).find(0, key_of(7)).has_value();
  };
  const auto make_older = [&] {
    for (const auto& file : files_of(folder))
      std::filesystem::last_write_time(
          file, std::filesystem::last_write_time(file) - std::chrono::hours(1));
  };
  for (const char* name : {"oldest", "middle", "newest"}) {  // About 1,500 bytes each.
    fill(name);
    make_older();
  }
  CHECK(knows("oldest"));
  fill("one more");
  CHECK_FALSE(knows("oldest"));
  CHECK(knows("middle"));
  CHECK(knows("one more"));
}

TEST_CASE("where nothing can be written lengths are found as long as the process lives",
          "[data][errors]") {
  const TempFolder folder;
  folder.write("lengths", "a file where the folder should be");
  LengthIndex index(in(folder), kOne);
  index.put(0, key_of(1), Numbers{1});
  index.save();
  index.put(0, key_of(2), Numbers{2});
  index.save();
  CHECK((index.find(0, key_of(1)) == Numbers{1}));
  CHECK((index.find(0, key_of(2)) == Numbers{2}));
  auto notes = index.take_notes();
  std::erase_if(notes, [](const auto& note) { return note.find("not kept") == std::string::npos; });
  REQUIRE(notes.size() == 1);
  CHECK(notes.front().find("data.index") != std::string::npos);
}

TEST_CASE("a correction is told once", "[data]") {
  const TempFolder folder;
  LengthIndex index(in(folder), kOne);
  index.put(0, key_of(1), Numbers{1});
  index.correct(0, key_of(1), Numbers{2}, "a.jpg has 2, not 1");
  index.correct(0, key_of(2), Numbers{2}, "b.jpg has 2, not 1");
  CHECK((index.find(0, key_of(1)) == Numbers{2}));
  const auto notes = index.take_notes();
  REQUIRE(notes.size() == 1);
  CHECK(notes.front().find("a.jpg has 2, not 1") != std::string::npos);
}

}  // namespace
}  // namespace troupe::data
