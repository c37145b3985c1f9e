#include "engine/profiling/profile_file.hpp"

#include <unistd.h>

#include <atomic>
#include <cmath>
#include <cstdio>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>
#include <system_error>

#include "runtime/files/look_up.hpp"
#include "runtime/files/read_stream.hpp"

namespace troupe::engine {

namespace {

using scheduler::CostOrigin;
using scheduler::PartCost;
using Json = nlohmann::ordered_json;

constexpr int kFormat = 1;

Json json_of(const PartCost& cost) {
  return {cost.forward_ms, cost.input_grad_ms, cost.weight_grad_ms, cost.activation_bytes};
}

Json json_of(const scheduler::LinkSpeed& link) {
  return {{"latency_ms", link.latency_ms}, {"gigabytes_per_s", link.gigabytes_per_s}};
}

/// Null where nothing is known.
const KindQuietness* quietness_of(const StoredProfile& stored,
                                  const scheduler::LayerProfile& kind) {
  for (const auto& quiet : stored.quiet)
    if (quiet.kind == kind.kind && quiet.parallelism == kind.parallelism) return &quiet;
  return nullptr;
}

Json json_of(const scheduler::LayerProfile& kind, const KindQuietness* quiet) {
  Json points = Json::array();
  for (const auto& point : kind.points)
    points.push_back({{"tokens", point.tokens},
                      {"linear", json_of(point.linear)},
                      {"attention", json_of(point.attention)}});
  Json made{{"kind", kind.kind},
            {"tp", kind.parallelism.tp},
            {"cp", kind.parallelism.cp},
            {"origin", to_string(kind.origin)}};
  if (kind.origin == CostOrigin::modelled) made["how"] = kModelledHow;  // Not read back.
  made["parameter_bytes"] = kind.parameters.count();
  if (quiet)
    made["runs"] = {
        {"kept", quiet->kept}, {"disturbed", quiet->disturbed}, {"repeated", quiet->repeated}};
  made["points"] = std::move(points);
  return made;
}

Json json_of(const scheduler::DeviceSpeeds& speeds) {
  Json made{{"origin", to_string(speeds.origin)},
            {"device", json_of(speeds.device)},
            {"node", json_of(speeds.node)},
            {"machine", json_of(speeds.machine)},
            {"network", json_of(speeds.network)},
            {"reduce_gigabytes_per_s", speeds.reduce_gigabytes_per_s},
            {"optimizer_elements_per_s", speeds.optimizer_elements_per_s},
            {"optimizer_group_ms", speeds.optimizer_group_ms},
            {"host", json_of(speeds.host)}};
  if (speeds.origin == CostOrigin::measured) made["links"] = kMeasuredLinks;  // Not read back.
  return made;
}

/// A field that is not what it must be.
struct Fault {
  std::string field;
  std::string problem;
};

/// Reads fields and remembers where it is; throws `Fault`, caught in `profile_from_json`.
class Reader {
 public:
  Reader(const Json& json, std::string field) : json_(json), field_(std::move(field)) {}

  Reader at(const char* name) const {
    if (!json_.is_object() || !json_.contains(name)) throw Fault{field_ + "." + name, "is missing"};
    return {json_[name], field_ + "." + name};
  }
  bool has(const char* name) const { return json_.is_object() && json_.contains(name); }
  Reader item(std::size_t index) const {
    return {json_[index], field_ + "[" + std::to_string(index) + "]"};
  }
  std::size_t size() const {
    if (!json_.is_array()) throw Fault{field_, "is no array"};
    return json_.size();
  }
  double number() const {
    if (!json_.is_number()) throw Fault{field_, "is no number"};
    const auto value = json_.get<double>();
    if (!(value >= 0) || !std::isfinite(value))
      throw Fault{field_, "is " + json_.dump() + ", expected a finite number of at least 0"};
    return value;
  }
  std::int64_t whole() const {
    if (!json_.is_number_integer() || json_.get<std::int64_t>() < 0)
      throw Fault{field_, "is " + json_.dump() + ", expected a whole number of at least 0"};
    return json_.get<std::int64_t>();
  }
  std::string text() const {
    if (!json_.is_string()) throw Fault{field_, "is no text"};
    return json_.get<std::string>();
  }
  CostOrigin origin() const {
    const auto name = text();
    for (const auto origin : {CostOrigin::measured, CostOrigin::modelled, CostOrigin::computed})
      if (name == to_string(origin)) return origin;
    throw Fault{field_, "is '" + name + "', expected measured, modelled or computed"};
  }
  PartCost cost() const {
    if (size() != 4) throw Fault{field_, "has " + std::to_string(json_.size()) + " of 4 numbers"};
    return {item(0).number(), item(1).number(), item(2).number(), item(3).number()};
  }
  scheduler::LinkSpeed link() const {
    return {at("latency_ms").number(), at("gigabytes_per_s").number()};
  }

 private:
  const Json& json_;
  std::string field_;
};

scheduler::LayerProfile read_kind(const Reader& entry) {
  scheduler::LayerProfile kind;
  kind.kind = entry.at("kind").text();
  kind.parallelism = {static_cast<std::int32_t>(entry.at("tp").whole()),
                      static_cast<std::int32_t>(entry.at("cp").whole())};
  kind.origin = entry.at("origin").origin();
  kind.parameters = Bytes{entry.at("parameter_bytes").whole()};
  const auto points = entry.at("points");
  for (std::size_t i = 0; i < points.size(); ++i) {
    const auto point = points.item(i);
    kind.points.push_back(
        {point.at("tokens").whole(), point.at("linear").cost(), point.at("attention").cost()});
  }
  return kind;
}

scheduler::DeviceSpeeds read_speeds(const Reader& entry) {
  scheduler::DeviceSpeeds speeds;
  speeds.origin = entry.at("origin").origin();
  speeds.device = entry.at("device").link();
  speeds.node = entry.at("node").link();
  speeds.machine = entry.at("machine").link();
  speeds.network = entry.at("network").link();
  speeds.reduce_gigabytes_per_s = entry.at("reduce_gigabytes_per_s").number();
  speeds.optimizer_elements_per_s = entry.at("optimizer_elements_per_s").number();
  speeds.optimizer_group_ms = entry.at("optimizer_group_ms").number();
  if (entry.has("host")) speeds.host = entry.at("host").link();  // Older files lack it.
  return speeds;
}

/// Files of older versions lack all of it.
void read_quietness(const Reader& root, StoredProfile& stored) {
  if (root.has("measured_at")) stored.measured_at = root.at("measured_at").text();
  if (root.has("probe_ms")) stored.probe_ms = root.at("probe_ms").number();
  if (root.has("runs_ratio")) stored.runs_ratio = root.at("runs_ratio").number();
  if (stored.runs_ratio <= 0) throw Fault{"profile.runs_ratio", "is 0, expected more"};
  const auto kinds = root.at("kinds");
  for (std::size_t i = 0; i < kinds.size(); ++i) {
    if (!kinds.item(i).has("runs")) continue;
    const auto runs = kinds.item(i).at("runs");
    const auto& kind = stored.profile.profiles[i];
    stored.quiet.push_back({kind.kind, kind.parallelism, runs.at("kept").whole(),
                            runs.at("disturbed").whole(), runs.at("repeated").whole()});
  }
}

StoredProfile read_profile(const Reader& root) {
  if (const auto format = root.at("format").whole(); format != kFormat)
    throw Fault{"profile.format",
                "is " + std::to_string(format) + ", this version reads " + std::to_string(kFormat)};
  StoredProfile stored;
  const auto key = root.at("key");
  stored.key = {key.at("model").text(), key.at("device").text(), key.at("software").text(),
                key.at("dtype").text(), static_cast<std::int32_t>(key.at("threads").whole())};
  stored.profile.device = root.at("device").text();
  const auto layers = root.at("layers");
  for (std::size_t i = 0; i < layers.size(); ++i)
    stored.profile.layers.push_back(
        {layers.item(i).at("layer").text(), layers.item(i).at("kind").text()});
  const auto kinds = root.at("kinds");
  for (std::size_t i = 0; i < kinds.size(); ++i)
    stored.profile.profiles.push_back(read_kind(kinds.item(i)));
  stored.profile.speeds = read_speeds(root.at("speeds"));
  read_quietness(root, stored);
  return stored;
}

Error io_failed(const std::filesystem::path& path, const std::string& what) {
  return {Errc::io_failed, "the profile cannot be " + what, path.string(),
          "choose another place with --out or scheduler.profile"};
}

}  // namespace

std::string hash_of(const std::string& text) {
  std::uint64_t hash = 14695981039346656037ULL;
  for (const char byte : text) hash = (hash ^ static_cast<unsigned char>(byte)) * 1099511628211ULL;
  char digits[17];
  std::snprintf(digits, sizeof digits, "%016llx", static_cast<unsigned long long>(hash));
  return digits;
}

std::string hash_of(const ProfileKey& key) {
  return hash_of(key.model + "\n" + key.device + "\n" + key.software + "\n" + key.dtype + "\n" +
                 std::to_string(key.threads));
}

std::string mismatch(const ProfileKey& wanted, const ProfileKey& there) {
  const auto differs = [](const char* what, const std::string& now, const std::string& then) {
    return std::string("the ") + what + " is " + now + ", the profile is of " + then;
  };
  if (wanted.model != there.model)
    return "the model's layers are not those of the profile (hash " + wanted.model + ", there " +
           there.model + ")";
  if (wanted.device != there.device) return differs("device", wanted.device, there.device);
  if (wanted.software != there.software)
    return differs("software", wanted.software, there.software);
  if (wanted.dtype != there.dtype) return differs("dtype", wanted.dtype, there.dtype);
  if (wanted.threads != there.threads)
    return differs("number of threads", std::to_string(wanted.threads),
                   std::to_string(there.threads));
  return {};
}

double disturbed_share(const StoredProfile& stored) {
  double all_ms = 0, disturbed_ms = 0;
  for (const auto& kind : stored.profile.profiles) {
    const auto* quiet = quietness_of(stored, kind);
    if (!quiet) continue;
    double kind_ms = 0;
    for (const auto& point : kind.points)
      for (const auto* part : {&point.linear, &point.attention})
        kind_ms += part->forward_ms + part->input_grad_ms + part->weight_grad_ms;
    all_ms += kind_ms;
    disturbed_ms += quiet->disturbed_share() * kind_ms;
  }
  return all_ms > 0 ? disturbed_ms / all_ms : 0;
}

std::int64_t repeated(const StoredProfile& stored) {
  std::int64_t sum = 0;
  for (const auto& quiet : stored.quiet) sum += quiet.repeated;
  return sum;
}

std::string busy_warning(const StoredProfile& stored) {
  const double share = disturbed_share(stored);
  if (share <= kDisturbedShareMax) return {};
  return "the machine was not quiet while its layers were measured: " +
         std::to_string(std::lround(100 * share)) + " % of the runs that count were disturbed, " +
         std::to_string(repeated(stored)) +
         " repeated; times may be too long: stop other programs, then `troupe profile --force`";
}

// Fields: see README.md. A part is [forward ms, input gradient ms, weight gradient ms, bytes].
std::string to_json(const StoredProfile& stored) {
  const auto& key = stored.key;
  const auto& profile = stored.profile;
  Json layers = Json::array(), kinds = Json::array();
  for (const auto& layer : profile.layers)
    layers.push_back({{"layer", layer.layer}, {"kind", layer.kind}});
  for (const auto& kind : profile.profiles)
    kinds.push_back(json_of(kind, quietness_of(stored, kind)));
  Json root = {{"format", kFormat},
               {"key",
                {{"model", key.model},
                 {"device", key.device},
                 {"software", key.software},
                 {"dtype", key.dtype},
                 {"threads", key.threads}}},
               {"device", profile.device}};
  if (!stored.measured_at.empty()) {
    root["measured_at"] = stored.measured_at;
    root["disturbed_share"] = disturbed_share(stored);  // These two are not read back.
    root["repeated"] = repeated(stored);
    root["probe_ms"] = stored.probe_ms;
    root["runs_ratio"] = stored.runs_ratio;
  }
  root["speeds"] = json_of(profile.speeds);
  root["layers"] = std::move(layers);
  root["kinds"] = std::move(kinds);
  return root.dump(1, ' ', false, Json::error_handler_t::replace) + "\n";
}

Result<StoredProfile> profile_from_json(const std::string& text, const std::string& where) {
  const auto json = Json::parse(text, nullptr, false);
  if (json.is_discarded())
    return Error{Errc::bad_data, "the profile is not JSON", where, "profile the job again"};
  try {
    return read_profile({json, "profile"});
  } catch (const Fault& fault) {
    return Error{Errc::bad_data, fault.field + " " + fault.problem, where, "profile the job again"};
  }
}

Result<StoredProfile> load_profile(const std::filesystem::path& path) {
  if (!files::is_file(path))
    return Error{Errc::not_found, "there is no profile here", path.string(),
                 "make one with `troupe profile`"};
  files::ReadStream file(path);
  std::ostringstream text;
  if (!file || !(text << file.rdbuf())) return io_failed(path, "read");
  return profile_from_json(text.str(), path.string());
}

Status write_whole(const std::filesystem::path& path, const std::string& text) {
  static std::atomic<int> count{0};
  std::error_code failed;
  if (path.has_parent_path()) std::filesystem::create_directories(path.parent_path(), failed);
  // A name of its own: two jobs may write the same profile in the same moment.
  const auto beside = path.string() + "." + std::to_string(getpid()) + "-" +
                      std::to_string(count.fetch_add(1)) + ".part";
  {
    std::ofstream file(beside, std::ios::binary);
    file << text;
    if (!file.flush()) return io_failed(path, "written");
  }
  std::filesystem::rename(beside, path, failed);
  if (failed) return io_failed(path, "written: " + failed.message());
  return Done{};
}

Status save_profile(const std::filesystem::path& path, const StoredProfile& stored) {
  return write_whole(path, to_json(stored));
}

}  // namespace troupe::engine
