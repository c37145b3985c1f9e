#include "runtime/data/samples/decode_sample.hpp"

#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>
#include <numeric>

#include "golden.hpp"
#include "runtime/data/samples/measure_sample.hpp"
#include "temp_folder.hpp"

using Catch::Matchers::ContainsSubstring;

namespace troupe::data {
namespace {

/// A data set of one record whose media lie in the golden folder, unless `folder` is given.
struct OneSample {
  explicit OneSample(const std::string& fields, const std::string& user = "q",
                     const std::string& assistant = "a") {
    nlohmann::json turns = {{{"from", "human"}, {"value", user}},
                            {{"from", "gpt"}, {"value", assistant}}};
    const std::string json = "[{\"id\": \"s\", " + fields + (fields.empty() ? "" : ", ") +
                             "\"conversations\": " + turns.dump() + "}]";
    options.sources = {{folder.write("samples.json", json), golden_path(""), "llava"}};
  }

  DecodeOutcome decode(WantedParts wanted = {}) const {
    auto dataset = Dataset::open(options);
    REQUIRE(dataset.ok());
    return decode_sample(dataset.value(), dataset.value()[0], options, wanted);
  }
  BadSample bad(WantedParts wanted = {}) const {
    auto outcome = decode(wanted);
    REQUIRE(std::holds_alternative<BadSample>(outcome));
    return std::get<BadSample>(outcome);
  }
  DecodedSample good(WantedParts wanted = {}) const {
    auto outcome = decode(wanted);
    if (auto* fault = std::get_if<BadSample>(&outcome)) FAIL(to_string(*fault));
    return std::get<DecodedSample>(std::move(outcome));
  }

  TempFolder folder;
  DataOptions options;
};

TEST_CASE("decode_sample brings text, pictures and clips together", "[data]") {
  const OneSample one(R"("image": ["rgb.jpg", "rgba.png"], "audio": "mono16k.wav")",
                      "<image><audio>\n<image>?", "ok");
  const DecodedSample sample = one.good();
  // 45 x 37 becomes 56 x 28 by rounding, which is less than 3136, hence ceil(45 s / 28) with
  // s = sqrt(3136 / 1665) = 1.372: 84 x 56, that is 6 x 4 patches and 3 x 2 rows.
  REQUIRE(sample.images.front().size() == 2);
  CHECK(sample.images[0][0].grid_width == 6);
  CHECK(sample.images[0][0].grid_height == 4);
  REQUIRE(sample.audio.front().size() == 1);
  CHECK(sample.audio[0][0].frames == 25);  // 4000 samples / 160.
  CHECK(sample.trained_tokens == 3);       // "ok" and its end.
  // begin, user, \n, ?, end, assistant, o, k, end are 9; rows are 6 + 13 + 6.
  CHECK(sample.llm_tokens == 9 + 6 + 13 + 6);

  const SampleShape shape = shape_of(sample, one.options, {{ModuleId{2}}, {ModuleId{0}}});
  CHECK(shape.id == "s");
  CHECK(shape.llm_tokens == 34);
  CHECK(shape.trained_tokens == 3);
  REQUIRE(shape.media.size() == 2);
  CHECK(shape.media[0].module == ModuleId{0});
  CHECK(shape.media[0].items ==
        std::vector<MediaShape>{{.input_rows = 25, .hidden_rows = 13, .output_rows = 13}});
  CHECK(shape.media[1].module == ModuleId{2});
  const MediaShape picture{24, 24, 6, 4, 6, 0};
  CHECK(shape.media[1].items[0] == picture);
  CHECK(shape.media[1].items[1].marker == 1);
  // A row of a picture repeats its pixels; sounds have none.
  CHECK((shape.media[0].columns == 80 && shape.media[0].equal_frames == 0));
  CHECK((shape.media[1].columns == 3 * 2 * 14 * 14 && shape.media[1].equal_frames == 2));

  // begin and user stand before the picture and the clip, \n besides before the other picture.
  CHECK((shape.markers ==
         std::vector<MediaMarker>{{ModuleId{2}, 2}, {ModuleId{0}, 2}, {ModuleId{2}, 3}}));

  // What the shape says is what the text takes.
  auto expanded = expand_text(sample.text, {rows_per_marker(shape.items(ModuleId{2}), 2)},
                              {rows_per_marker(shape.items(ModuleId{0}), 1)});
  REQUIRE(expanded.ok());
  CHECK(std::ssize(expanded.value().tokens) == shape.llm_tokens);
}

TEST_CASE("decode_sample leaves out what a node does not want", "[data]") {
  const OneSample one(R"("image": "rgb.jpg")", "<image>");
  const DecodedSample text = one.good({.images = 0, .audio = 0, .text = true});
  CHECK(text.images.front().empty());
  CHECK_FALSE(text.text.tokens.empty());
  CHECK(text.llm_tokens == 0);
  const DecodedSample media =
      one.good({.images = kEveryEncoder, .audio = kEveryEncoder, .text = false});
  CHECK(media.images.front().size() == 1);
  CHECK(media.text.tokens.empty());
  CHECK(media.llm_tokens == one.good().llm_tokens);
  CHECK(media.trained_tokens == 2);
}

TEST_CASE("every encoder of a medium gets every item, cut as it takes it", "[data]") {
  OneSample one(R"("image": ["rgb.jpg", "rgba.png"], "audio": "mono16k.wav")",
                "<image><audio>\n<image>?", "ok");
  one.options.vision = {{"eyes", {}}, {"glasses", {.patch_size = 7, .merge_size = 4}}};
  one.options.audio.push_back({"ears", {.mel_bins = 128, .pooled_rows = 2}});
  const DecodedSample sample = one.good();
  REQUIRE(sample.images.size() == 2);
  REQUIRE(sample.images[1].size() == 2);
  // Both round sizes to 28 pixels: 84 x 56, in patches of 14 and of 7.
  CHECK(sample.images[0][1].grid_width == 6);
  CHECK(sample.images[1][1].grid_width == 12);
  CHECK(sample.images[1][0].patches.size() == 12 * 8 * 3 * 2 * 7 * 7);
  REQUIRE(sample.audio.size() == 2);
  CHECK(sample.audio[0][0].mel.size() == 25 * 80);
  CHECK(sample.audio[1][0].mel.size() == 25 * 128);
  // begin, user, \n, ?, end, assistant, o, k, end; 6 rows per picture and encoder; 13 and 7 of the
  // clip.
  CHECK(sample.llm_tokens == 9 + 4 * 6 + 13 + 7);

  const MediaModules modules{{ModuleId{0}, ModuleId{2}}, {ModuleId{1}, ModuleId{3}}};
  const SampleShape shape = shape_of(sample, one.options, modules);
  CHECK(shape.llm_tokens == sample.llm_tokens);
  CHECK(shape.output_rows(ModuleId{2}) == 12);
  CHECK(shape.output_rows(ModuleId{3}) == 7);
  CHECK((shape.markers == std::vector<MediaMarker>{{ModuleId{0}, 2},
                                                   {ModuleId{2}, 2},
                                                   {ModuleId{1}, 2},
                                                   {ModuleId{3}, 2},
                                                   {ModuleId{0}, 3},
                                                   {ModuleId{2}, 3}}));
  const Dataset dataset = Dataset::open(one.options).value();
  const auto measured = measure_sample(dataset, dataset[0], one.options, modules);
  CHECK((std::get<SampleShape>(measured) == shape));

  const DecodedSample second = one.good({.images = 2, .audio = 1, .text = true});
  CHECK(second.images[0].empty());
  CHECK((second.images[1] == sample.images[1]));
  CHECK(second.audio[1].empty());
  CHECK(second.llm_tokens == 0);  // Rows of the others are missing.
}

TEST_CASE("decode_sample reads the files of the wanted encoders alone", "[data]") {
  // Where audio is wanted, the picture that is not there does no harm, and the other way round.
  const OneSample no_picture(R"("image": "none.jpg", "audio": "mono16k.wav")", "<image><audio>");
  const WantedParts clip{.images = 0, .audio = kEveryEncoder, .text = false};
  const DecodedSample heard = no_picture.good(clip);
  CHECK(heard.audio.front().size() == 1);
  CHECK(heard.images.front().empty());
  CHECK(heard.llm_tokens == 0);  // Its length is not known without the picture.
  CHECK(no_picture.bad().file == "none.jpg");

  const OneSample no_clip(R"("image": "rgb.jpg", "audio": "none.wav")", "<image><audio>");
  const WantedParts picture{.images = kEveryEncoder, .audio = 0, .text = false};
  CHECK(no_clip.good(picture).images.front().size() == 1);
  CHECK(no_clip.bad(clip).file == "none.wav");
  // A sample without pictures is whole for a node that reads audio and text.
  const OneSample spoken(R"("audio": "mono16k.wav")", "<audio>");
  CHECK(spoken.good(clip).llm_tokens == spoken.good().llm_tokens);
}

TEST_CASE("decode_sample gives all windows of a long clip to one marker", "[data]") {
  OneSample one(R"("audio": ["long.wav", "mono16k.wav"])", "<audio>a<audio>");
  // 31 s of silence at 8 kHz, 8 bits: 30 s and 1 s, 3000 and 100 frames.
  std::string wav = golden_bytes("mono16k.wav").substr(0, 22);
  wav += std::string("\1\0\x40\x1f\0\0\x40\x1f\0\0\1\0\x08\0", 14);
  wav += "data";
  const std::uint32_t size = 31 * 8000;
  for (int i = 0; i < 4; ++i) wav += static_cast<char>(size >> (8 * i) & 0xFF);
  one.folder.write("long.wav", wav + std::string(size, '\x80'));
  one.folder.write("mono16k.wav", golden_bytes("mono16k.wav"));
  one.options.sources[0].media = one.folder.path();

  const DecodedSample sample = one.good();
  REQUIRE(sample.audio.front().size() == 3);
  CHECK(sample.audio[0][0].frames == 3000);
  CHECK(sample.audio[0][1].frames == 100);
  CHECK(sample.audio[0][1].marker == 0);
  CHECK(sample.audio[0][2].marker == 1);
  const SampleShape shape = shape_of(sample, one.options, {{ModuleId{}}, {ModuleId{1}}});
  CHECK(rows_per_marker(shape.items(ModuleId{1}), 2) == std::vector<TokenCount>{1550, 13});
}

TEST_CASE("decode_sample names sample, file and reason of each fault", "[data][errors]") {
  SECTION("missing file") {
    const BadSample bad = OneSample(R"("image": "none.jpg")", "<image>").bad();
    CHECK(bad.kind == BadKind::missing_file);
    CHECK(bad.id == "s");
    CHECK(bad.file == "none.jpg");
    CHECK(bad.where == "samples.json:1");
    CHECK_THAT(bad.reason, ContainsSubstring("no file"));
  }
  SECTION("undecodable") {
    const BadSample bad = OneSample(R"("image": "mono16k.wav")", "<image>").bad();
    CHECK(bad.kind == BadKind::unreadable_media);
    CHECK(bad.file == "mono16k.wav");
    CHECK(OneSample(R"("audio": "rgb.jpg")", "<audio>").bad().kind == BadKind::unreadable_media);
  }
  SECTION("markers") {
    const BadSample bad = OneSample(R"("image": "rgb.jpg")", "<image><image>").bad();
    CHECK(bad.kind == BadKind::marker_mismatch);
    CHECK(bad.reason == "the text has 2 <image> markers for 1 files");
    CHECK(OneSample(R"("audio": "mono16k.wav")", "none").bad().kind == BadKind::marker_mismatch);
  }
  SECTION("nothing to train") {
    CHECK(OneSample("", "q", "").bad().reason == "every assistant turn is empty");
    OneSample none("");
    none.folder.write("samples.json", R"([{"conversations": [{"from": "human", "value": "q"}]}])");
    CHECK(none.bad().kind == BadKind::no_trained_token);
  }
  SECTION("malformed") {
    OneSample one("");
    one.folder.write("samples.json", "[{}]");
    CHECK(one.bad().kind == BadKind::malformed_record);
  }
  SECTION("no encoder") {
    OneSample one(R"("image": "rgb.jpg", "audio": "mono16k.wav")", "<image><audio>");
    one.options.vision.clear();
    CHECK(one.bad().reason == "the model has no vision encoder");
    one.options.vision = {VisionEncoder{}};
    one.options.audio.clear();
    CHECK(one.bad().kind == BadKind::no_encoder);
    CHECK(one.bad().file == "mono16k.wav");
  }
  SECTION("too long") {
    OneSample one("", "q", "a");  // begin user q end assistant a end: 7 tokens.
    one.options.max_seq_len = 7;
    CHECK(one.good().llm_tokens == 7);
    one.options.max_seq_len = 6;
    CHECK(one.bad().kind == BadKind::too_long);
    CHECK_THAT(one.bad().reason, ContainsSubstring("7 tokens"));
  }
  SECTION("too short") {
    OneSample one(R"("audio": "tiny.wav")", "<audio>");
    std::string wav = golden_bytes("shortest.wav");  // 160 samples; one less:
    wav.resize(wav.size() - 2);
    wav[40] = static_cast<char>(wav[40] - 2);
    one.folder.write("tiny.wav", wav);
    one.options.sources[0].media = one.folder.path();
    CHECK_THAT(one.bad().reason, ContainsSubstring("159 samples"));
  }
  SECTION("too large") {
    OneSample one(R"("image": "rgb.jpg")", "<image>");
    one.options.decoded_pixels_max = 100;
    CHECK_THAT(one.bad().reason, ContainsSubstring("limit of 100"));
  }
  SECTION("a path that no file system holds") {
    const OneSample one("\"image\": \"" + std::string(5000, 'x') + "\"", "<image>");
    CHECK(one.bad().kind == BadKind::unreadable_media);
  }
}

TEST_CASE("decode_sample reports faults of the text where media are not wanted", "[data]") {
  const WantedParts text_only{.images = 0, .audio = 0, .text = true};
  CHECK(OneSample("", "<image>").bad(text_only).kind == BadKind::marker_mismatch);
  CHECK(OneSample(R"("image": "none.jpg")", "<image>").good(text_only).id == "s");
}

TEST_CASE("an encoder may pool its rows or hand on a fixed number", "[data]") {
  VisionInput vision;
  CHECK(image_shape(4, 6, vision, 0).output_rows == 6);  // 2 x 2 patches each.
  vision.rows_per_image = 5;
  const auto resampled = image_shape(4, 6, vision, 1);
  CHECK(resampled.hidden_rows == 24);
  CHECK(resampled.output_rows == 5);
  AudioInput audio;
  CHECK(audio_shape(7, audio, 0).output_rows == 4);  // Two frames make one, rounded up.
  audio.pooled_rows = 3;
  CHECK(audio_shape(7, audio, 0).hidden_rows == 4);
  CHECK(audio_shape(7, audio, 0).output_rows == 2);
  audio.rows_per_window = 9;
  CHECK(audio_shape(7, audio, 0).output_rows == 9);
  audio.frames_per_row = 1;
  CHECK(audio_shape(7, audio, 0).hidden_rows == 7);
}

}  // namespace
}  // namespace troupe::data
