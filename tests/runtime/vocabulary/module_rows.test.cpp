#include "runtime/vocabulary/module_rows.hpp"

#include <catch2/catch_test_macros.hpp>

namespace troupe {
namespace {

const ModuleId kVision{0}, kAudio{2};

MediaShape item(std::int32_t output_rows, std::int32_t marker) {
  MediaShape made;
  made.output_rows = output_rows;
  made.marker = marker;
  return made;
}

TEST_CASE("media are spans where their markers stand in the text", "[vocabulary]") {
  // Two of text, a picture of 3 rows, one of text, a clip of two windows of 2 and 1 rows, at once a
  // picture of 4, two of text: 2 + 3 + 1 + 3 + 4 + 2.
  SampleShape sample;
  sample.media = {{kVision, {item(3, 0), item(4, 1)}}, {kAudio, {item(2, 0), item(1, 0)}}};
  sample.llm_tokens = 15;
  sample.markers = {{kVision, 2}, {kAudio, 3}, {kVision, 3}};
  CHECK(token_sample(sample) == TokenSample{15, {{2, 5}, {6, 9}, {9, 13}}});

  // Markers of a module count on their own: the second picture is not the clip's.
  sample.markers = {{kAudio, 0}, {kVision, 0}, {kVision, 5}};
  CHECK(token_sample(sample) == TokenSample{15, {{0, 3}, {3, 6}, {11, 15}}});
}

TEST_CASE("a marker without rows leaves no span, and text alone has none", "[vocabulary]") {
  SampleShape sample;
  sample.llm_tokens = 6;
  CHECK(token_sample(sample) == TokenSample{6, {}});
  sample.media = {{kAudio, {item(0, 0), item(2, 1)}}};
  sample.markers = {{kAudio, 1}, {kAudio, 2}};
  CHECK(token_sample(sample) == TokenSample{6, {{2, 4}}});
}

TEST_CASE("rows of a teacher are the tokens of text", "[vocabulary]") {
  // Two of text, a picture of 3 rows, one of text, a clip of two windows of 2 and 1, two of text.
  SampleShape sample;
  sample.media = {{kVision, {item(3, 0)}}, {kAudio, {item(2, 0), item(1, 0)}}};
  sample.llm_tokens = 11;
  sample.markers = {{kVision, 2}, {kAudio, 3}};
  CHECK(text_rows(sample) == 5);
  ModelGraph graph;
  graph.modules.resize(5);
  graph.modules[4].kind = ModuleKind::llm;
  graph.modules[3].kind = ModuleKind::teacher;
  CHECK(output_rows(graph, ModuleId{3}, sample) == 5);
  CHECK(hidden_rows(graph, ModuleId{3}, sample) == 5);
  CHECK(output_rows(graph, ModuleId{4}, sample) == 11);
}

}  // namespace
}  // namespace troupe
