// The laws of a boundary (cases.md) on the messages that steps are planned with. They are carried
// out here row by row, by an execution that knows which rows a part has or needs, and not who made
// the messages.

#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <map>
#include <random>
#include <set>
#include <span>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "scheduler/iteration/redistribution.hpp"
#include "scheduler/layout/place_by_hand.hpp"
#include "tests/scheduler/example_models.hpp"

namespace troupe::scheduler {
namespace {

using testing::draw;

/// The modules whose rows go to the llm, in `vision_audio_llm`.
constexpr std::int32_t kCrossing[] = {1, 3};

/// So many replicas of the encoders, then of the llm, one stage each on a node of its own: stage r
/// is replica r.
ParallelPlan plan_of(int encoders, int llms) {
  HandLayout layout;
  for (int r = 0; r < encoders; ++r)
    layout.replicas.push_back({{"vision", "audio"}, {{r, 0, {{"vision", {}}, {"audio", {}}}}}});
  for (int r = 0; r < llms; ++r)
    layout.replicas.push_back({{"llm"}, {{encoders + r, 0, {{"llm", {}}}}}});
  return place_by_hand(testing::vision_audio_llm(), layout, {encoders + llms, 1}).value();
}

/// How the units of one side are cut: a list for each of its replicas.
using Cut = std::vector<MicrobatchList>;

/// A redistribution: what its messages are made from, and these.
struct Move {
  Move(std::span<const SampleShape> samples, std::span<const SamplePiece> pieces, const Cut& from,
       const Cut& to)
      : units(samples, pieces),
        plan(plan_of(static_cast<int>(from.size()), static_cast<int>(to.size()))),
        flow(plan.model, units.shapes()),
        lists(from),
        encoders(from.size()) {
    lists.insert(lists.end(), to.begin(), to.end());
    for (Message& message : plan_messages(plan, flow, lists, units))
      if (plan.is_llm(plan.at(message.destination.stage).replica)) messages.push_back(message);
  }

  SampleUnits units;
  ParallelPlan plan;
  RowFlow flow;
  std::vector<MicrobatchList> lists;
  std::size_t encoders;           ///< The first replicas; the llm has the others.
  std::vector<Message> messages;  ///< Those that cross the boundary.
};

/// One row that a module hands to the llm: its sample, and its place among the rows of that.
using Row = std::pair<std::int32_t, TokenCount>;

/// What parts of one side have or need of a module, in their order. A part is named by its
/// replica's place on that side, its microbatch and itself.
using PartName = std::tuple<std::size_t, std::int32_t, std::int32_t>;
using Side = std::map<PartName, std::vector<Row>>;
using Values = std::map<PartName, std::vector<double>>;

void add_rows(const Move& move, ModuleId module, std::span<const std::int32_t> units,
              std::vector<Row>& rows) {
  for (const std::int32_t unit : units)
    for (TokenCount row = 0; row < move.flow.output(module, unit); ++row)
      rows.push_back({move.units.sample_of(unit), move.units.rows_before(unit) + row});
}

Side side_of(const Move& move, ModuleId module, bool source) {
  Side side;
  const std::size_t begin = source ? 0 : move.encoders;
  const std::size_t end = source ? move.encoders : move.lists.size();
  for (std::size_t r = begin; r < end; ++r)
    for (std::size_t m = 0; m < move.lists[r].size(); ++m)
      for (std::size_t q = 0; q < move.lists[r][m].parts.size(); ++q)
        add_rows(move, module, move.lists[r][m].parts[q].samples,
                 side[{r - begin, static_cast<std::int32_t>(m), static_cast<std::int32_t>(q)}]);
  return side;
}

PartName name_of(const Move& move, const Message& message, bool source) {
  const MessageEnd& end = source ? message.source : message.destination;
  const std::size_t begin = source ? 0 : move.encoders;
  return {end.stage.index() - begin, end.microbatch.value, end.part.value};
}

/// Where a row stands. Fails the test where it does not.
std::size_t place_of(const std::vector<Row>& rows, const Row& row) {
  const auto found = std::find(rows.begin(), rows.end(), row);
  if (found == rows.end()) FAIL("a message carries a row that its end does not have");
  return static_cast<std::size_t>(found - rows.begin());
}

/// Carries what one side holds over to the other one: rows forward, else their gradients back.
Values carried(const Move& move, ModuleId module, bool forward, const Values& held) {
  const Side from = side_of(move, module, forward), to = side_of(move, module, !forward);
  Values there;
  for (const auto& [part, rows] : to) there[part].assign(rows.size(), -1);
  for (const Message& message : move.messages) {
    if (message.module != module) continue;
    const PartName source = name_of(move, message, forward);
    const PartName destination = name_of(move, message, !forward);
    std::vector<Row> rows;
    add_rows(move, module, message.samples, rows);
    for (const Row& row : rows) {
      const double value = held.at(source)[place_of(from.at(source), row)];
      double& place = there.at(destination)[place_of(to.at(destination), row)];
      if (place != -1) FAIL("a row is put in its place twice");
      place = value;
    }
  }
  return there;
}

/// What a side holds when each row has its value.
Values values_of(const Side& side, const std::map<Row, double>& values) {
  Values held;
  for (const auto& [part, rows] : side)
    for (auto& own = held[part]; const Row& row : rows) own.push_back(values.at(row));
  return held;
}

/// A value in [0, 1) for each row of a side.
std::map<Row, double> random_values(const Side& side, std::mt19937& random) {
  std::map<Row, double> values;
  for (const auto& [part, rows] : side)
    for (const Row& row : rows) values[row] = static_cast<double>(random()) / 4294967296.0;
  return values;
}

/// Cuts units, in this order, into parts, microbatches and replicas of any sizes; a replica may get
/// none.
Cut random_cut(const std::vector<std::int32_t>& units, std::mt19937& random) {
  Cut cut(static_cast<std::size_t>(draw(random, 1, 5)));
  std::size_t replica = 0;
  for (const std::int32_t unit : units) {
    const int next = draw(random, 0, 5);
    if (next == 0 && replica + 1 < cut.size()) ++replica;
    MicrobatchList& list = cut[replica];
    if (list.empty() || next == 1) list.emplace_back().parts.emplace_back();
    if (next == 2 && !list.back().parts.back().samples.empty()) list.back().parts.emplace_back();
    list.back().parts.back().samples.push_back(unit);
  }
  return cut;
}

/// A batch, and its units in the order of their rows.
struct Batch {
  std::vector<SampleShape> samples;
  std::vector<SamplePiece> pieces;
  std::vector<std::int32_t> encoder, llm;  ///< Units of each side.
};

/// Samples with any numbers of rows, some of which encoders take in pieces.
Batch random_batch(std::mt19937& random) {
  Batch batch;
  const int count = draw(random, 0, 9);
  for (int s = 0; s < count; ++s) {
    batch.samples.push_back(testing::sample(draw(random, 0, 4), draw(random, 0, 3)));
    for (ModuleMedia& media : batch.samples.back().media)
      for (MediaShape& item : media.items) item.output_rows = draw(random, 1, 5);
    batch.llm.push_back(s);
    if (batch.samples.back().media.empty() || draw(random, 0, 2) > 0) {
      batch.encoder.push_back(s);
      continue;
    }
    for (const ModuleMedia& media : batch.samples.back().media)
      for (int begin = 0, size = 0; begin < std::ssize(media.items); begin += size) {
        size = draw(random, 1, static_cast<int>(std::ssize(media.items)) - begin);
        batch.encoder.push_back(count + static_cast<std::int32_t>(batch.pieces.size()));
        batch.pieces.push_back({s, media.module, begin, size});
      }
  }
  return batch;
}

/// Pairs of parts with rows in common, by where the intervals of the two sides lie on one line.
std::size_t overlapping(const Side& from, const Side& to) {
  std::size_t pairs = 0, source = 0;
  for (const auto& [a, own] : from) {
    std::size_t destination = 0;
    for (const auto& [b, needed] : to) {
      pairs += std::max(source, destination) <
               std::min(source + own.size(), destination + needed.size());
      destination += needed.size();
    }
    source += own.size();
  }
  return pairs;
}

TEST_CASE("the messages of a step keep the laws of a boundary, to the bit",
          "[scheduler][property]") {
  std::size_t fan_in = 0, fan_out = 0, in_pieces = 0, shuffled = 0;
  for (std::uint32_t seed = 0; seed < 2000; ++seed) {
    CAPTURE(seed);
    std::mt19937 random(seed);
    Batch batch = random_batch(random);
    const bool in_order = draw(random, 0, 1) == 0;
    if (!in_order) {
      std::shuffle(batch.encoder.begin(), batch.encoder.end(), random);
      std::shuffle(batch.llm.begin(), batch.llm.end(), random);
    }
    const Move move(batch.samples, batch.pieces, random_cut(batch.encoder, random),
                    random_cut(batch.llm, random));
    for (const std::int32_t crossing : kCrossing) {
      const ModuleId module{crossing};
      const Side from = side_of(move, module, true), to = side_of(move, module, false);
      const auto rows = random_values(from, random), gradients = random_values(to, random);
      // Forward each part gets its own rows, those of all its sources beside each other.
      const Values there = carried(move, module, true, values_of(from, rows));
      REQUIRE(there == values_of(to, rows));
      // Back each gets the gradients of its own rows, those of siblings beside each other and never
      // added up.
      REQUIRE(carried(move, module, false, values_of(to, gradients)) == values_of(from, gradients));
      // The way back is the inverse.
      REQUIRE(carried(move, module, false, there) == values_of(from, rows));
      // One message for each pair of parts that share rows, in the order of the source's part.
      std::set<std::pair<PartName, PartName>> pairs;
      std::map<PartName, std::size_t> sources, destinations;
      std::size_t messages = 0;
      for (const Message& message : move.messages) {
        if (message.module != module) continue;
        ++messages;
        const PartName source = name_of(move, message, true);
        const PartName destination = name_of(move, message, false);
        pairs.insert({source, destination});
        ++destinations[source];
        ++sources[destination];
        std::vector<Row> carries;
        add_rows(move, module, message.samples, carries);
        REQUIRE(std::ssize(carries) == message.rows);
        const auto& own = from.at(source);
        REQUIRE(std::is_sorted(carries.begin(), carries.end(), [&](const Row& a, const Row& b) {
          return place_of(own, a) < place_of(own, b);
        }));
      }
      REQUIRE(messages == pairs.size());
      if (in_order) REQUIRE(messages == overlapping(from, to));
      for (const auto& [part, count] : sources) fan_in += count > 1;
      for (const auto& [part, count] : destinations) fan_out += count > 1;
    }
    in_pieces += !batch.pieces.empty();
    shuffled += !in_order;
  }
  CHECK(fan_in > 500);
  CHECK(fan_out > 500);
  CHECK(in_pieces > 500);
  CHECK(shuffled > 500);
}

TEST_CASE("two redistributions of a step's messages are one", "[scheduler][property]") {
  std::size_t moved = 0;
  for (std::uint32_t seed = 0; seed < 2000; ++seed) {
    CAPTURE(seed);
    std::mt19937 random(seed);
    Batch batch = random_batch(random);
    const Cut from = random_cut(batch.encoder, random);
    std::shuffle(batch.llm.begin(), batch.llm.end(), random);
    const Cut middle = random_cut(batch.llm, random);
    std::shuffle(batch.llm.begin(), batch.llm.end(), random);
    const Cut to = random_cut(batch.llm, random);
    const Move first(batch.samples, batch.pieces, from, middle);
    const Move second(batch.samples, {}, middle, to);
    const Move once(batch.samples, batch.pieces, from, to);
    for (const std::int32_t crossing : kCrossing) {
      const ModuleId module{crossing};
      const Side own = side_of(once, module, true), needed = side_of(once, module, false);
      const Values rows = values_of(own, random_values(own, random));
      const Values gradients = values_of(needed, random_values(needed, random));
      REQUIRE(carried(once, module, true, rows) ==
              carried(second, module, true, carried(first, module, true, rows)));
      REQUIRE(carried(once, module, false, gradients) ==
              carried(first, module, false, carried(second, module, false, gradients)));
    }
    moved += once.messages.size();
  }
  CHECK(moved > 5000);
}

/// The messages of a boundary as `0>1 3`: from replica 0 to 1 three rows.
std::vector<std::string> lines_of(const Move& move) {
  std::vector<std::string> lines;
  for (const Message& message : move.messages)
    lines.push_back(std::to_string(std::get<0>(name_of(move, message, true))) + ">" +
                    std::to_string(std::get<0>(name_of(move, message, false))) + " " +
                    std::to_string(message.rows));
  return lines;
}

/// A sample of one sound with so many rows for the llm, or of text alone.
SampleShape sound_of(std::int32_t rows) {
  SampleShape shape = testing::sample(0, rows > 0 ? 1 : 0);
  if (rows > 0) shape.media[0].items[0].output_rows = rows;
  return shape;
}

/// So many replicas, each with these samples in one part; none: it gets nothing.
Cut cut_of(const std::vector<std::vector<std::int32_t>>& samples) {
  Cut cut(samples.size());
  for (std::size_t r = 0; r < samples.size(); ++r)
    if (!samples[r].empty()) cut[r].emplace_back().parts.push_back({samples[r]});
  return cut;
}

using Lines = std::vector<std::string>;

TEST_CASE("rows of a boundary by hand", "[scheduler]") {
  // Six rows, held as 0, 3, 1 and 2.
  const std::vector samples{sound_of(0), sound_of(3), sound_of(1), sound_of(2)};
  const Cut four = cut_of({{0}, {1}, {2}, {3}});
  const Cut two = cut_of({{0, 1}, {2, 3}});
  // Fan-in: three rows to each.
  CHECK(lines_of({samples, {}, four, two}) == Lines{"1>0 3", "2>1 1", "3>1 2"});
  // Fan-out: the same pairs the other way.
  CHECK(lines_of({samples, {}, two, four}) == Lines{"0>1 3", "1>2 1", "1>3 2"});
  // As many on both sides: each keeps its own.
  CHECK(lines_of({samples, {}, four, four}) == Lines{"1>1 3", "2>2 1", "3>3 2"});
  // Two into three, which do not divide each other.
  CHECK(lines_of({samples, {}, two, cut_of({{1}, {0, 2}, {3}})}) ==
        Lines{"0>0 3", "1>1 1", "1>2 2"});
}

}  // namespace
}  // namespace troupe::scheduler
