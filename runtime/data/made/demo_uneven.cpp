// Samples that are as uneven as real ones: most are small, a few are giants.

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "runtime/data/made/demo_writer.hpp"

namespace troupe::data {
namespace {

using Json = nlohmann::ordered_json;

// Stereo at high rates would make the longest clips megabytes, and writing them the longest part.
constexpr std::int32_t kRates[] = {8000, 11025, 16000};

/// A log-normal whole number of [smallest, largest].
std::int32_t uneven(Random& random, double median, double sigma, std::int32_t smallest,
                    std::int32_t largest) {
  return static_cast<std::int32_t>(
      std::clamp(random.log_normal(median, sigma), double{1} * smallest, double{1} * largest));
}

DemoPicture uneven_picture(DemoWriter& writer) {
  const double side = std::sqrt(writer.random().log_normal(14'000, 1));
  const double slimness = writer.random().log_normal(1, 0.35);
  const auto bounded = [](double length) {
    return static_cast<std::int32_t>(std::clamp(length, 30.0, 480.0));
  };
  return writer.random_picture(bounded(side * slimness), bounded(side / slimness));
}

DemoPicture giant_picture(DemoWriter& writer) {
  const std::int32_t width = writer.random().between(700, 1000);
  const std::int32_t height = writer.random().between(700, 1000);
  return writer.random_picture(width, height);
}

DemoWriter::Tones uneven_clip(DemoWriter& writer) {
  return writer.write_tones(uneven(writer.random(), 4, 0.8, 1, 24), kRates);
}

/// Turns, markers and files of one sample while it grows.
class Sample {
 public:
  explicit Sample(DemoWriter& writer) : writer_(writer) {}

  Sample& show(const DemoPicture& picture) {
    images_.push_back(writer_.write_picture(picture));
    return add("<image>", DemoWriter::name_of(picture));
  }

  Sample& play(const DemoWriter::Tones& tones) {
    clips_.push_back(tones.file);
    return add("<audio>", tones.heard);
  }

  /// Words that are asked and answered one after another.
  Sample& spell(std::int32_t count) {
    for (std::int32_t i = 0; i < count; ++i) {
      const DemoWord word = random_word(writer_.random());
      add(std::string(i == 0 ? "" : " ") + std::string(word.text), std::string(word.letters));
    }
    return *this;
  }

  /// Puts text before the next item: what lies between pictures and clips of a real page.
  Sample& say(const std::string& text) {
    question_ += text;
    return *this;
  }

  /// Ends a turn of each side.
  Sample& ask(const std::string& question) {
    turns_.push_back(question_ + question);
    turns_.push_back(answer_ + ".");
    question_.clear();
    answer_.clear();
    return *this;
  }

  void finish() {
    Json media = Json::object();
    if (!images_.empty()) media["image"] = images_;
    if (!clips_.empty()) media["audio"] = clips_;
    writer_.add_record(media, turns_);
  }

 private:
  Sample& add(const std::string& marker, const std::string& answer) {
    question_ += marker;
    answer_ += (answer_.empty() ? "" : "; ") + answer;
    return *this;
  }

  DemoWriter& writer_;
  std::vector<std::string> images_, clips_, turns_;
  std::string question_, answer_;
};

void add_pictures(DemoWriter& writer, std::int32_t count) {
  Sample sample(writer);
  for (std::int32_t i = 0; i < count; ++i) sample.show(uneven_picture(writer));
  sample.ask("\nName each picture.").finish();
}

void add_clips(DemoWriter& writer, std::int32_t count) {
  Sample sample(writer);
  for (std::int32_t i = 0; i < count; ++i) sample.play(uneven_clip(writer));
  sample.ask("\nWhich tones?").finish();
}

void add_text(DemoWriter& writer, std::int32_t words) {
  Sample(writer).spell(words).ask("\nHow many letters has each?").finish();
}

void add_picture_and_clips(DemoWriter& writer) {
  Sample sample(writer);
  sample.show(uneven_picture(writer));
  const std::int32_t count = writer.random().between(1, 3);
  for (std::int32_t i = 0; i < count; ++i) sample.play(uneven_clip(writer));
  sample.ask("\nWhat is shown, and which tones are played?").finish();
}

/// Pictures, clips and text in any order, also in a later turn.
void add_interleaved(DemoWriter& writer) {
  Sample sample(writer);
  sample.say("Look at ").show(uneven_picture(writer)).say(", listen to ");
  sample.play(uneven_clip(writer)).say(" and look again at ").show(uneven_picture(writer));
  sample.ask(": name all three.");
  if (writer.random().between(0, 1) == 0)
    sample.say("Then ").play(uneven_clip(writer)).say(" came, with ").show(uneven_picture(writer));
  else
    sample.say("And of ").spell(uneven(writer.random(), 4, 0.8, 1, 20));
  sample.ask("?").finish();
}

void add_giant(DemoWriter& writer, std::int32_t number) {
  Sample sample(writer);
  switch (number % 4) {
    case 0: sample.show(giant_picture(writer)).ask("\nWhat is this?"); break;
    case 1: {
      // Every other one takes two windows of 30 s.
      const bool two_windows = number % 8 == 1;
      const std::int32_t count =
          two_windows ? writer.random().between(124, 132) : writer.random().between(60, 110);
      sample.play(writer.write_tones(count, kRates));
      sample.ask("\nWhich tones?");
      break;
    }
    case 2: sample.spell(writer.random().between(60, 90)).ask("\nHow many letters?"); break;
    default: {
      const std::int32_t count = writer.random().between(5, 7);
      for (std::int32_t i = 0; i < count; ++i) sample.show(uneven_picture(writer));
      sample.show(giant_picture(writer));
      sample.play(writer.write_tones(writer.random().between(30, 60), kRates));
      sample.ask("\nWhat is shown, and which tones are played?");
      sample.spell(writer.random().between(10, 20)).ask("\nHow many letters?");
    }
  }
  sample.finish();
}

}  // namespace

void add_uneven_sample(DemoWriter& writer, std::int32_t number) {
  switch (number % 16) {
    case 0:
    case 5:
    case 10: return add_text(writer, uneven(writer.random(), 3, 1, 1, 40));
    case 1:
    case 6:
    case 11: return add_pictures(writer, 1);
    case 2:
    case 12: return add_pictures(writer, writer.random().between(2, 5));
    case 3:
    case 8: return add_clips(writer, 1);
    case 13: return add_clips(writer, writer.random().between(2, 6));
    case 4:
    case 9: return add_picture_and_clips(writer);
    case 7:
    case 14: return add_interleaved(writer);
    default: return add_giant(writer, number / 16);
  }
}

}  // namespace troupe::data
