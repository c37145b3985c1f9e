#include "runtime/data/samples/dataset.hpp"

#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>

#include "temp_folder.hpp"

using Catch::Matchers::ContainsSubstring;

namespace troupe::data {
namespace {

const std::string kTurns =
    R"("conversations": [{"from": "human", "value": "Hi"}, {"from": "gpt", "value": "Ho"}])";

Result<Dataset> open_text(const TempFolder& folder, const std::string& text) {
  DataOptions options;
  options.sources = {{folder.write("samples.json", text), folder.path(), "llava"}};
  return Dataset::open(options);
}

std::string defect_of(const std::string& object) {
  TempFolder folder;
  auto dataset = open_text(folder, "[" + object + "]");
  REQUIRE(dataset.ok());
  REQUIRE(dataset.value().size() == 1);
  return dataset.value()[0].defect;
}

Error error_of(const std::string& text) {
  TempFolder folder;
  auto dataset = open_text(folder, text);
  REQUIRE_FALSE(dataset.ok());
  return dataset.error();
}

TEST_CASE("Dataset reads an array with one or several media in any order", "[data]") {
  TempFolder folder;
  auto dataset = open_text(folder, R"([
    {"id": "a", "image": "x.jpg", "audio": ["1.wav", "2.wav"], "extra": {"deep": [1, "]"]},
     "conversations": [{"from": "system", "value": "Be brief."},
                       {"from": "human", "value": "<audio>\n<image> and <audio>?"},
                       {"from": "gpt", "value": "Yes, \"]}\" \u00e9"}]},
    {"id": 7, "image": null, "audio": [],
     "conversations": [{"from": "user", "value": "u"}, {"from": "assistant", "value": "v"}]}
  ])");

  REQUIRE(dataset.ok());
  REQUIRE(dataset.value().size() == 2);
  const Record& first = dataset.value()[0];
  CHECK(first.id == "a");
  CHECK(first.images == std::vector<std::string>{"x.jpg"});
  CHECK(first.audio == std::vector<std::string>{"1.wav", "2.wav"});
  CHECK(first.turns == std::vector<Turn>{{Role::system, "Be brief."},
                                         {Role::user, "<audio>\n<image> and <audio>?"},
                                         {Role::assistant, "Yes, \"]}\" \u00e9"}});
  CHECK(first.where == "samples.json:2");
  CHECK(first.defect.empty());
  CHECK(dataset.value()[1].id == "7");
  CHECK(dataset.value()[1].images.empty());
  CHECK(dataset.value()[1].where == "samples.json:6");
  CHECK(dataset.value().media_path(first, "x.jpg") == folder.path() / "x.jpg");
  CHECK(dataset.value().media_path(first, "/abs/x.jpg") == "/abs/x.jpg");
}

TEST_CASE("Dataset reads one object per line and skips empty lines", "[data]") {
  TempFolder folder;
  auto dataset =
      open_text(folder, "\xEF\xBB\xBF{\"id\": \"a\", " + kTurns + "}\r\n\n{" + kTurns + "}");
  REQUIRE(dataset.ok());
  REQUIRE(dataset.value().size() == 2);
  CHECK(dataset.value()[0].id == "a");
  CHECK(dataset.value()[1].id == "samples.json#1");
  CHECK(dataset.value()[1].where == "samples.json:3");
}

TEST_CASE("Dataset numbers records through all sources and keeps their folders apart", "[data]") {
  TempFolder folder;
  DataOptions options;
  options.sources = {{folder.write("a/s.json", "[{" + kTurns + "}]"), {}, "llava"},
                     {folder.write("b/s.json", "[{" + kTurns + "}]"), "elsewhere", "llava"}};
  auto dataset = Dataset::open(options);
  REQUIRE(dataset.ok());
  REQUIRE(dataset.value().size() == 2);
  // Same file name: made ids carry the path, so that they differ.
  CHECK(dataset.value()[0].id == (folder.path() / "a/s.json").string() + "#0");
  CHECK(dataset.value()[1].id == (folder.path() / "b/s.json").string() + "#0");
  CHECK(dataset.value().media_path(dataset.value()[0], "i.png") == folder.path() / "a/i.png");
  CHECK(dataset.value().media_path(dataset.value()[1], "i.png") == "elsewhere/i.png");
}

TEST_CASE("Dataset turns a broken record into a defect of that record", "[data][errors]") {
  CHECK_THAT(defect_of("3"), ContainsSubstring("number, not an object"));
  CHECK_THAT(defect_of(R"({"id": "a"})"), ContainsSubstring("no 'conversations'"));
  CHECK_THAT(defect_of(R"({"conversations": "x"})"), ContainsSubstring("string instead of a list"));
  CHECK_THAT(defect_of(R"({"conversations": []})"), ContainsSubstring("is empty"));
  CHECK_THAT(defect_of(R"({"conversations": [5]})"), ContainsSubstring("turn 1 is a number"));
  CHECK_THAT(defect_of(R"({"conversations": [{"value": "x"}]})"), ContainsSubstring("no 'from'"));
  CHECK_THAT(defect_of(R"({"conversations": [{"from": "gpt"}]})"), ContainsSubstring("no 'value'"));
  CHECK_THAT(defect_of(R"({"conversations": [{"from": "robot", "value": "x"}]})"),
             ContainsSubstring("unknown speaker 'robot'"));
  CHECK_THAT(defect_of(R"({"conversations": [{"from": "gpt", "value": "x"},
                                             {"from": "system", "value": "x"}]})"),
             ContainsSubstring("turn 2 is a system turn"));
  CHECK_THAT(defect_of(R"({"image": "", )" + kTurns + "}"), ContainsSubstring("empty path"));
  CHECK_THAT(defect_of(R"({"audio": ["a", 4], )" + kTurns + "}"),
             ContainsSubstring("'audio' holds a number"));
  CHECK_THAT(defect_of(R"({"id": [1], )" + kTurns + "}"), ContainsSubstring("'id' is a array"));
  CHECK(defect_of("{" + kTurns + "}").empty());
}

TEST_CASE("media nested a hundred thousand deep are a defect of their record", "[data][errors]") {
  const std::string deep = std::string(100'000, '[') + std::string(100'000, ']');
  for (const auto* field : {"image", "audio", "id", "conversations", "images", "note"}) {
    CAPTURE(field);
    const std::string record = std::string("{\"") + field + "\": " + deep + "}";
    for (const auto& text : {"[" + record + "]", record + "\n{" + kTurns + "}\n"}) {
      TempFolder folder;
      const auto dataset = open_text(folder, text);
      REQUIRE(dataset.ok());
      CHECK_FALSE(dataset.value()[0].defect.empty());
    }
  }
  CHECK(defect_of("{\"image\": " + deep + ", " + kTurns + "}") ==
        "'image' holds a array instead of a path");
}

TEST_CASE("media under another format's key make a defect, not a sample without them",
          "[data][errors]") {
  const auto with = [](const std::string& field) {
    return defect_of("{" + field + R"(, "conversations": [{"from": "gpt", "value": "x"}]})");
  };
  CHECK(with(R"("images": ["a.png"])") == "'images' is not read: media stand under 'image'");
  CHECK(with(R"("audio_path": "a.wav")") == "'audio_path' is not read: media stand under 'audio'");
  CHECK(with(R"("video": "a.mp4")") == "'video' names media that no encoder takes");
  for (const auto* field : {R"("video": null)", R"("images": [])", R"("images": "")",
                            R"("note": "a.png")", R"("image": [])"})
    CHECK(with(field).empty());
}

TEST_CASE("Dataset points at the place where a file stops being JSON", "[data][errors]") {
  const Error comma = error_of("[\n {\"id\": 1,, \"x\": 2}\n]");
  CHECK(comma.code == Errc::bad_data);
  CHECK(comma.where == "samples.json:2:11");
  CHECK_THAT(comma.message, ContainsSubstring("not JSON"));

  CHECK(error_of("{\"id\": 1,\n").where == "samples.json:1:10");
  CHECK_THAT(error_of("[{\"a\": 1}").message, ContainsSubstring("ends inside the record"));
  CHECK_THAT(error_of("[{\"a\": \"x").message, ContainsSubstring("ends inside the record"));
  CHECK_THAT(error_of("[").message, ContainsSubstring("not closed"));
  CHECK_THAT(error_of("[{}] x").message, ContainsSubstring("after the end"));
  CHECK(error_of("[{},]").code == Errc::bad_data);
  CHECK_THAT(error_of("[{\"id\": 1e999}]").message, ContainsSubstring("not JSON"));
  CHECK(error_of("[{\"a\": \"\xff\"}]").code == Errc::bad_data);  // Not UTF-8.
}

TEST_CASE("Dataset refuses files without records", "[data][errors]") {
  CHECK_THAT(error_of("").message, ContainsSubstring("is empty"));
  CHECK_THAT(error_of(" \n").message, ContainsSubstring("is empty"));
  CHECK_THAT(error_of("[]").message, ContainsSubstring("no record"));
  CHECK_THAT(error_of("id,text").message, ContainsSubstring("neither a JSON array"));
}

TEST_CASE("Dataset names both places of an id that is used twice", "[data][errors]") {
  const std::string record = "{\"id\": \"s1\", " + kTurns + "}";
  const Error error = error_of("[" + record + ",\n{" + kTurns + "},\n" + record + "]");
  CHECK(error.code == Errc::bad_data);
  CHECK(error.where == "samples.json:3");
  CHECK_THAT(error.message, ContainsSubstring("'s1' at samples.json:1 and samples.json:3"));
  CHECK_THAT(error.fix, ContainsSubstring("leave 'id' out"));
}

TEST_CASE("Dataset says which source is missing or wrong", "[data][errors]") {
  TempFolder folder;
  DataOptions options;
  CHECK(Dataset::open(options).error().where == "data.sources");

  options.sources = {{folder.path() / "none.json", {}, "llava"}};
  auto missing = Dataset::open(options);
  CHECK(missing.error().code == Errc::not_found);
  CHECK(missing.error().where == "data.sources[0].json");
  CHECK_THAT(missing.error().message, ContainsSubstring("none.json"));

  options.sources[0].json = folder.path();
  CHECK(Dataset::open(options).error().code == Errc::io_failed);

  options.sources[0].format = "parquet";
  CHECK(Dataset::open(options).error().where == "data.sources[0].format");

  options.sources[0] = {folder.write("s.json", "[{\"image\": \"a.jpg\", " + kTurns + "}]"),
                        folder.path() / "nowhere", "llava"};
  CHECK(Dataset::open(options).error().where == "data.sources[0].media");

  options.sources[0].media = folder.path();
  CHECK(Dataset::open(options).ok());
  options.max_pixels = 100;
  CHECK(Dataset::open(options).error().where == "data.max_pixels");
}

TEST_CASE("options that make no sense are named, all at once", "[data][errors]") {
  const auto where = [](auto change) {
    DataOptions options;
    change(options);
    std::string named;
    for (const auto& problem : problems_of(options))
      named += (named.empty() ? "" : " ") + problem.where;
    return named;
  };
  CHECK(where([](DataOptions&) {}).empty());
  CHECK(where([](DataOptions& o) { o.min_pixels = 0; }) == "data.min_pixels");
  CHECK(where([](DataOptions& o) { o.max_pixels = 783; }) == "data.max_pixels");
  CHECK(where([](DataOptions& o) { o.max_pixels = 784, o.min_pixels = 784; }).empty());
  CHECK(where([](DataOptions& o) { o.max_pixels = 3135; }) == "data.max_pixels");
  const auto in_square = [&](std::int32_t side) {
    return where([=](DataOptions& o) {
      o.max_pixels = o.min_pixels = 1;  // No concern of squares.
      o.vision[0].input.resize = {ResizeMode::stretch, side};
    });
  };
  CHECK(in_square(28).empty());
  CHECK(in_square(27) == "modules.vision.config");
  CHECK(where([](DataOptions& o) { o.audio[0].input.mel_bins = 202; }) ==
        "modules.audio.config.num_mel_bins");
  CHECK(where([](DataOptions& o) { o.max_seq_len = -1; }) == "data.max_seq_len");
  CHECK(where([](DataOptions& o) { o.vision[0].input.patch_size = 0; }) == "modules.vision.config");
  CHECK(where([](DataOptions& o) { o.decoded_pixels_max = 0; }) == "data");
  CHECK(where([](DataOptions& o) {
          o.audio[0].input.mel_bins = 0, o.min_pixels = 0, o.max_pixels = 3;
        }) == "data.min_pixels data.max_pixels modules.audio.config.num_mel_bins");
}

TEST_CASE("nothing is opened of a source that is not here", "[data]") {
  TempFolder folder;
  const std::string one = R"([{"id": "a", )" + kTurns + "}]",
                    two = R"([{"id": "b", )" + kTurns + R"(}, {"id": "c", )" + kTurns + "}]";
  DataOptions options;
  options.sources = {{folder.write("one.json", one), folder.path()},
                     {folder.path() / "nowhere.json", folder.path() / "nor-this"},
                     {folder.write("two.json", two), folder.path()}};
  CHECK(Dataset::open(options).error().code == Errc::not_found);
  options.sources[1].is_here = false;

  const auto dataset = Dataset::open(options).value();

  CHECK_FALSE(dataset.is_whole());
  CHECK((dataset.is_here(0) && !dataset.is_here(1) && dataset.is_here(2)));
  CHECK(dataset.size() == 3);
  CHECK(dataset.source_counts() == std::vector<std::int64_t>{1, 0, 2});
  // Of 1 + 4 + 2 records, those of the middle one are elsewhere.
  const std::vector<std::int64_t> counts{1, 4, 2};
  const auto id = [&](std::int64_t index) {
    const Record* record = dataset.find(index, counts);
    return record ? record->id : "";
  };
  CHECK(id(0) == "a");
  for (std::int64_t index = 1; index < 5; ++index) CHECK(id(index).empty());
  CHECK(id(5) == "b");
  CHECK(id(6) == "c");
  CHECK(id(7).empty());
}

TEST_CASE("a list may be read where its media are not", "[data]") {
  TempFolder folder;
  DataOptions options;
  options.sources = {
      {folder.write("one.json", R"([{"id": "a", "image": "x.png", )" + kTurns + "}]"),
       folder.path() / "nowhere"}};
  CHECK(Dataset::open(options).error().where == "data.sources[0].media");
  options.sources[0].may_lack_media = true;
  CHECK(Dataset::open(options).value().size() == 1);
}

}  // namespace
}  // namespace troupe::data
