#include "engine/run/head_memory_file.hpp"

#include <cmath>
#include <exception>
#include <string>
#include <utility>

#include "runtime/files/read_stream.hpp"
#include "runtime/observe/line_file.hpp"
#include "runtime/state/progress_json.hpp"

namespace troupe::engine {

namespace fs = std::filesystem;

namespace {

using state::Json;

constexpr const char* kFile = "learned.json";

double positive(const Json& json, const char* key) {
  const double value = json.at(key).get<double>();
  if (!(std::isfinite(value) && value > 0))
    throw state::BadManifest(std::string("'") + key + "' is no number above 0");
  return value;
}

double not_negative(const Json& json, const char* key) {
  const double value = json.at(key).get<double>();
  if (!(std::isfinite(value) && value >= 0))
    throw state::BadManifest(std::string("'") + key + "' is no number from 0 on");
  return value;
}

HeadMemory memory_of(const Json& json) {
  HeadMemory memory;
  memory.step = state::number(json, "step");
  memory.costs = state::read_learned(json.at("learned"));
  for (const Json& entry : state::list(json, "slow"))
    memory.slow.push_back({NodeId{state::number(entry, "node")}, positive(entry, "times"),
                           positive(entry, "own_usual"), positive(entry, "beside_usual")});
  memory.changes = {state::number(json, "changes"), not_negative(json, "elapsed_ms")};
  return memory;
}

}  // namespace

Status write_head_memory(const fs::path& run, const HeadMemory& memory) {
  Json slow = Json::array();
  for (const SlowNodeNote& note : memory.slow)
    slow.push_back({{"node", note.node.value},
                    {"times", note.times},
                    {"own_usual", note.own_usual},
                    {"beside_usual", note.beside_usual}});
  const Json json{{"step", memory.step},
                  {"learned", state::json_of(memory.costs)},
                  {"slow", slow},
                  {"changes", memory.changes.count},
                  {"elapsed_ms", memory.changes.elapsed_ms}};
  return observe::write_whole_file(run / kFile, json.dump() + "\n");
}

std::optional<HeadMemory> read_head_memory(const fs::path& run) {
  const auto text = files::read_whole(run / kFile);
  if (!text) return std::nullopt;
  try {
    return memory_of(Json::parse(*text));
  } catch (const std::exception&) {  // Of the JSON library, or BadManifest.
    return std::nullopt;
  }
}

HeadMemory recall_head_memory(const fs::path& run, const JobProgress& saved,
                              std::int64_t live_step) {
  auto memory = read_head_memory(run);
  if (memory && memory->step >= saved.step && memory->step <= live_step) return *std::move(memory);
  return {saved.step, saved.learned};
}

}  // namespace troupe::engine
