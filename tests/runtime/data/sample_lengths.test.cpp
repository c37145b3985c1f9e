#include "runtime/data/samples/sample_lengths.hpp"

#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <filesystem>
#include <fstream>
#include <memory>
#include <thread>

#include "golden.hpp"
#include "runtime/data/formats/registry.hpp"
#include "runtime/data/made/demo_data.hpp"
#include "runtime/data/samples/data_summary.hpp"
#include "runtime/data/samples/measure_sample.hpp"
#include "temp_folder.hpp"

namespace troupe::data {
namespace {

const MediaModules kModules{{ModuleId{1}}, {ModuleId{0}}};

LengthIndexOptions in(const TempFolder& folder) {
  LengthIndexOptions options;
  options.folder = folder.path() / "lengths";
  options.settled_after = std::chrono::milliseconds(0);
  return options;
}

std::unique_ptr<LengthIndex> index_in(const TempFolder& folder) {
  return std::make_unique<LengthIndex>(in(folder), std::vector<std::string>{"one", "two"});
}

struct Counted {
  std::vector<MeasureOutcome> outcomes;
  std::int64_t indexed = 0;
};

Counted measure_all(const Dataset& dataset, const DataOptions& options, LengthIndex* index) {
  Counted counted;
  for (const auto& record : dataset.records()) {
    SampleLengths lengths(index, record.source);
    counted.outcomes.push_back(measure_sample(dataset, record, options, kModules, lengths));
    counted.indexed += lengths.was_indexed() ? 1 : 0;
  }
  return counted;
}

/// A data set with one record of a picture and a clip.
struct OneSample {
  OneSample() {
    folder.write("rgb.jpg", golden_bytes("rgb.jpg"));
    folder.write("mono8k.wav", golden_bytes("mono8k.wav"));
    write_list("What is that?");
  }

  void write_list(const std::string& question) {
    nlohmann::json record = {{"id", "s"}, {"image", "rgb.jpg"}, {"audio", "mono8k.wav"}};
    record["conversations"] = {{{"from", "human"}, {"value", "<image><audio>" + question}},
                               {{"from", "gpt"}, {"value", "answer"}}};
    options.sources = {{folder.write("samples.json", nlohmann::json::array({record}).dump()), {}}};
  }

  Dataset open() const { return Dataset::open(options).value(); }
  std::filesystem::path picture() const { return folder.path() / "rgb.jpg"; }

  /// What is measured with the index, and whether nothing was read for it.
  std::pair<MeasureOutcome, bool> measured(LengthIndex& index) const {
    auto counted = measure_all(open(), options, &index);
    return {counted.outcomes.front(), counted.indexed == 1};
  }
  SampleShape from_files() const {
    return std::get<SampleShape>(measure_all(open(), options, nullptr).outcomes.front());
  }

  TempFolder folder;
  DataOptions options;
};

/// Another picture than rgb.jpg, in as many bytes.
std::string other_picture() {
  const std::string first = golden_bytes("rgb.jpg");
  // Half as high by its header, which is all that is read here: FF C0, length, precision, height.
  std::string other = first;
  const auto frame = other.find("\xFF\xC0");
  REQUIRE(frame != std::string::npos);
  other[frame + 5] = 0;
  other[frame + 6] = 8;
  REQUIRE(other != first);
  return other;
}

/// A WAV file of so many 16-bit samples at 8 kHz.
std::string silence(std::uint32_t samples) {
  std::string file = "RIFF";
  const auto add = [&](std::uint32_t number, int bytes) {
    for (int i = 0; i < bytes; ++i) file += static_cast<char>(number >> (8 * i) & 0xFF);
  };
  add(36 + 2 * samples, 4);
  file += "WAVEfmt ";
  add(16, 4);
  add(1, 2);  // PCM, one channel.
  add(1, 2);
  add(8000, 4);
  add(16000, 4);
  add(2, 2);
  add(16, 2);
  file += "data";
  add(2 * samples, 4);
  file.append(2 * std::size_t{samples}, '\0');
  return file;
}

TEST_CASE("lengths by way of an index are those of the files", "[data][property]") {
  // Pictures in both formats, clips of several rates; limits that some samples exceed; two sources.
  const TempFolder folder;
  const bool uneven = GENERATE(false, true);
  DataOptions options;
  for (const char* name : {"first", "second"}) {
    const auto made =
        make_demo_data(folder.path() / name, {.samples = 40, .seed = 7, .uneven = uneven});
    REQUIRE(made.ok());
    // Of the second one two files are damaged: bad samples, cold and warm.
    if (name == std::string("second")) {
      auto records = nlohmann::json::parse(file_bytes(made.value().json));
      for (auto& record : records) record["id"] = "b" + record["id"].get<std::string>();
      std::ofstream(made.value().json) << records.dump();
      int spoilt = 0;
      for (const auto& entry : std::filesystem::recursive_directory_iterator(folder.path() / name))
        if (entry.is_regular_file() && entry.path() != made.value().json && spoilt < 2)
          std::ofstream(entry.path()) << (spoilt++ == 0 ? "" : "damaged");
      REQUIRE(spoilt == 2);
    }
    options.sources.push_back({made.value().json, {}, "llava"});
  }
  options.max_pixels = GENERATE(6272, 1003520);
  options.max_seq_len = GENERATE(0, 100);
  const auto dataset = Dataset::open(options).value();
  const auto files = measure_all(dataset, options, nullptr);
  CHECK(files.indexed == 0);

  auto index = index_in(folder);
  const auto cold = measure_all(dataset, options, index.get());
  CHECK((cold.outcomes == files.outcomes));
  CHECK(cold.indexed < dataset.size() / 4);  // Nothing but texts that occur twice.
  const auto faulty = [&] {
    std::int64_t count = 0;
    for (const auto& outcome : files.outcomes)
      if (const auto* bad = std::get_if<BadSample>(&outcome))
        count += bad->kind == BadKind::unreadable_media ? 1 : 0;
    return count;
  }();
  CHECK(faulty > 0);

  index->save();
  index = index_in(folder);
  const auto warm = measure_all(dataset, options, index.get());
  CHECK((warm.outcomes == files.outcomes));
  CHECK(warm.indexed == dataset.size() - faulty);

  // Sizes of media are what is kept: another model, and other limits, read none of them again.
  DataOptions others = options;
  others.max_pixels = 25088;
  others.pad_audio = true;
  others.vision.front().input.patch_size = 16;
  const auto of_others = measure_all(dataset, others, index.get());
  CHECK((of_others.outcomes == measure_all(dataset, others, nullptr).outcomes));
  CHECK(of_others.indexed == dataset.size() - faulty);
}

TEST_CASE("a record of any format is known by what it says", "[data]") {
  const auto read = [](std::string_view text, const std::string&) -> Result<std::vector<Record>> {
    Record record;
    record.turns = {{Role::user, std::string(text)}, {Role::assistant, "yes"}};
    return std::vector<Record>{record};
  };
  const auto added = register_format({"one-line", read});
  REQUIRE((added.ok() || check_format("one-line").ok()));
  const TempFolder folder;
  DataOptions options;
  options.sources = {{folder.write("a.txt", "is it so?"), {}, "one-line"}};
  auto index = index_in(folder);
  CHECK(measure_all(Dataset::open(options).value(), options, index.get()).indexed == 0);
  CHECK(measure_all(Dataset::open(options).value(), options, index.get()).indexed == 1);
}

TEST_CASE("a media file that has changed is read anew, also with its old size and time", "[data]") {
  OneSample one;
  const auto index = index_in(one.folder);
  const auto before = one.from_files();
  CHECK_FALSE(one.measured(*index).second);
  CHECK(one.measured(*index).second);
  const auto time = std::filesystem::last_write_time(one.picture());
  std::this_thread::sleep_for(std::chrono::milliseconds(30));  // More than a file system's step.
  one.folder.write("rgb.jpg", other_picture());
  std::filesystem::last_write_time(one.picture(), time);

  const auto [outcome, was_indexed] = one.measured(*index);
  CHECK_FALSE(was_indexed);
  CHECK((std::get<SampleShape>(outcome) == one.from_files()));
  CHECK_FALSE((std::get<SampleShape>(outcome) == before));
  CHECK(one.measured(*index).second);
}

TEST_CASE("a text that has changed is counted anew, and others are not", "[data]") {
  OneSample one;
  const auto index = index_in(one.folder);
  one.measured(*index);
  one.write_list("What else is that?");
  CHECK_FALSE(one.measured(*index).second);
  CHECK((std::get<SampleShape>(one.measured(*index).first) == one.from_files()));
  one.write_list("What is that?");
  CHECK(one.measured(*index).second);
}

TEST_CASE("a picture or clip above a limit is refused, whatever the index knows of it", "[data]") {
  OneSample one;
  one.folder.write("mono8k.wav", silence(3 * 8000));
  const auto index = index_in(one.folder);
  CHECK(std::holds_alternative<SampleShape>(one.measured(*index).first));
  if (GENERATE(false, true))
    one.options.decoded_pixels_max = 100;
  else
    one.options.audio_seconds_max = 2;
  const auto dataset = one.open();
  const auto files = measure_all(dataset, one.options, nullptr);
  REQUIRE(std::holds_alternative<BadSample>(files.outcomes.front()));
  CHECK((measure_all(dataset, one.options, index.get()).outcomes == files.outcomes));
}

TEST_CASE("a file that was repaired counts at once", "[data][errors]") {
  OneSample one;
  const auto index = index_in(one.folder);
  std::filesystem::rename(one.picture(), one.folder.path() / "away.jpg");
  CHECK(std::holds_alternative<BadSample>(one.measured(*index).first));
  std::filesystem::rename(one.folder.path() / "away.jpg", one.picture());
  CHECK((std::get<SampleShape>(one.measured(*index).first) == one.from_files()));
}

TEST_CASE("a file that may still be written is measured and not kept", "[data]") {
  OneSample one;
  auto options = in(one.folder);
  options.settled_after = std::chrono::hours(1);
  LengthIndex index(options, std::vector<std::string>{"one"});
  CHECK((std::get<SampleShape>(one.measured(index).first) == one.from_files()));
  CHECK_FALSE(one.measured(index).second);
}

TEST_CASE("what a decode finds different corrects the index", "[data]") {
  OneSample one;
  const auto index = index_in(one.folder);
  const auto dataset = one.open();
  const Record& record = dataset[0];
  const auto right = one.from_files();
  // Wrong entries under the right keys: what a damaged disk or a defect might leave behind.
  SampleLengths keys(index.get(), 0);
  const int kind = GENERATE(0, 1, 2);
  const auto clip = one.folder.path() / "mono8k.wav";
  if (kind == 0)
    index->put(0, *keys.before_image(one.picture(), one.options.decoded_pixels_max),
               std::vector<std::int64_t>{280, 560});
  if (kind == 1)
    index->put(0, *keys.before_clip(clip, one.options.audio_seconds_max),
               std::vector<std::int64_t>{16000 * 40});
  if (kind == 2) index->put(0, *key_of(record.turns), std::vector<std::int64_t>{50, 20, 2, 7});
  CAPTURE(kind);
  CHECK_FALSE((std::get<SampleShape>(one.measured(*index).first) == right));

  REQUIRE(std::holds_alternative<DecodedSample>(
      decode_sample(dataset, record, one.options, {}, index.get())));
  const auto [outcome, was_indexed] = one.measured(*index);
  CHECK(was_indexed);
  CHECK((std::get<SampleShape>(outcome) == right));
  CHECK(index->take_notes().size() == 1);
}

TEST_CASE("decoding fills an index that measuring finds", "[data]") {
  OneSample one;
  const auto index = index_in(one.folder);
  const auto dataset = one.open();
  CHECK(summarize(dataset, one.options, 1, {}, index.get()).bad.empty());
  const auto [outcome, was_indexed] = one.measured(*index);
  CHECK(was_indexed);
  CHECK((std::get<SampleShape>(outcome) == one.from_files()));
  CHECK(index->take_notes().empty());
}

TEST_CASE("numbers that are no lengths of a text are not taken for some", "[data][errors]") {
  const TextLengths lengths{50, 20, {{false, 2}, {true, 2}, {false, 50}}};
  CHECK((text_lengths_of(to_numbers(lengths)) == lengths));
  for (const std::vector<std::int64_t>& numbers :
       {std::vector<std::int64_t>{}, {50}, {20, 50}, {50, 20, 102}, {50, 20, 8, 4}})
    CHECK_FALSE(text_lengths_of(numbers));
}

}  // namespace
}  // namespace troupe::data
