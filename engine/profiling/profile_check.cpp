#include "engine/profiling/profile_check.hpp"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <ctime>
#include <nlohmann/json.hpp>
#include <sstream>

#include "engine/iteration/plan_summary.hpp"
#include "engine/learning/stage_speeds.hpp"
#include "engine/profiling/median.hpp"
#include "runtime/files/read_stream.hpp"

namespace troupe::engine {

namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

constexpr std::size_t kNotesMax = 16;
constexpr std::size_t kRatiosMax = 1024;

bool positive(double value) { return std::isfinite(value) && value > 0; }

/// -1, 0 or 1: shorter than the profile says, as it says, longer.
int direction(double ratio) {
  return ratio > 1 + kCheckBand ? 1 : ratio < 1 / (1 + kCheckBand) ? -1 : 0;
}

/// Forward and backward of a kind at a size.
double total_ms(const scheduler::ProfilePoint& point) {
  double sum = 0;
  for (const auto* part : {&point.linear, &point.attention})
    sum += part->forward_ms + part->input_grad_ms + part->weight_grad_ms;
  return sum;
}

/// Null where `profile` lacks it.
const scheduler::ProfilePoint* find_point(const scheduler::Profile& profile,
                                          const scheduler::LayerProfile& kind, TokenCount tokens) {
  for (const auto& other : profile.profiles) {
    if (other.kind != kind.kind || other.parallelism != kind.parallelism) continue;
    for (const auto& point : other.points)
      if (point.tokens == tokens) return &point;
  }
  return nullptr;
}

/// Median over kinds and sizes; 1 where they have none in common.
double change(const scheduler::Profile& before, const scheduler::Profile& now) {
  std::vector<double> changes;
  for (const auto& kind : before.profiles)
    for (const auto& point : kind.points)
      if (const auto* other = find_point(now, kind, point.tokens);
          other && positive(total_ms(point)) && positive(total_ms(*other)))
        changes.push_back(total_ms(*other) / total_ms(point));
  return changes.empty() ? 1 : engine::median(std::move(changes));
}

}  // namespace

std::string utc_now() {
  const std::time_t now = std::time(nullptr);
  std::tm parts{};
  gmtime_r(&now, &parts);
  char text[32];
  std::strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%SZ", &parts);
  return text;
}

fs::path notes_path(const fs::path& profile) {
  auto path = profile;
  path.replace_extension(".runs.json");
  return path;
}

std::vector<ProfileNote> load_notes(const fs::path& profile) {
  files::ReadStream file(notes_path(profile));
  std::ostringstream text;
  if (!file || !(text << file.rdbuf())) return {};
  const auto json = Json::parse(text.str(), nullptr, false);
  std::vector<ProfileNote> notes;
  try {
    for (const auto& entry : json.at("runs")) {
      ProfileNote note{entry.at("run").get<std::string>(), entry.at("date").get<std::string>(),
                       entry.at("profile").get<std::string>(), entry.at("ratio").get<double>(),
                       entry.at("steps").get<std::int64_t>()};
      if (positive(note.ratio)) notes.push_back(std::move(note));
    }
  } catch (const Json::exception&) {
    return {};
  }
  return notes;
}

Status add_note(const fs::path& profile, const ProfileNote& note) {
  auto notes = load_notes(profile);
  std::erase_if(notes, [&](const ProfileNote& other) {
    return other.run == note.run && other.date == note.date;
  });
  notes.push_back(note);
  if (notes.size() > kNotesMax)
    notes.erase(notes.begin(), notes.end() - static_cast<std::ptrdiff_t>(kNotesMax));
  Json runs = Json::array();
  for (const auto& entry : notes)
    runs.push_back({{"run", entry.run},
                    {"date", entry.date},
                    {"profile", entry.profile},
                    {"ratio", entry.ratio},
                    {"steps", entry.steps}});
  return write_whole(
      notes_path(profile),
      Json{{"runs", std::move(runs)}}.dump(1, ' ', false, Json::error_handler_t::replace) + "\n");
}

std::vector<ProfileNote> disagreement(std::span<const ProfileNote> notes,
                                      const StoredProfile& stored) {
  std::vector<ProfileNote> last;
  for (const auto& note : notes)
    if (note.profile == stored.measured_at) last.push_back(note);
  if (last.size() < kCheckRuns) return {};
  last.erase(last.begin(), last.end() - static_cast<std::ptrdiff_t>(kCheckRuns));
  const auto way = [&](const ProfileNote& note) {
    return direction(note.ratio / stored.runs_ratio);
  };
  const bool same = std::all_of(last.begin(), last.end(), [&](const ProfileNote& note) {
    return way(note) != 0 && way(note) == way(last.front());
  });
  if (!same) last.clear();
  return last;
}

double ratio_of(std::span<const ProfileNote> notes) {
  std::vector<double> ratios;
  for (const auto& note : notes) ratios.push_back(note.ratio);
  return engine::median(std::move(ratios));
}

std::string describe(std::span<const ProfileNote> notes) {
  char text[96];
  std::snprintf(text, sizeof text, "the last %zu runs took %.2f times as long as it says",
                notes.size(), ratio_of(notes));
  std::string runs;
  for (const auto& note : notes) runs += (runs.empty() ? "" : ", ") + note.run;
  return text + (" (" + runs + ")");
}

double remaining_ratio(const scheduler::Profile& before, const scheduler::Profile& now,
                       double ratio) {
  const double remaining = ratio / change(before, now);
  return direction(remaining) == 0 ? 1 : remaining;
}

bool ProfileCheck::add(std::span<const double> profile_ms, std::span<const double> measured_ms) {
  double said_ms = 0, took_ms = 0;
  for (std::size_t s = 0; s < std::min(profile_ms.size(), measured_ms.size()); ++s) {
    if (!positive(profile_ms[s]) || !positive(measured_ms[s])) continue;
    said_ms += profile_ms[s];
    took_ms += measured_ms[s];
  }
  if (said_ms <= 0 || warm_up_ < kCheckWarmUp) {
    if (said_ms > 0) ++warm_up_;
    return false;
  }
  const double ratio = took_ms / said_ms;
  if (ratios_.size() < kRatiosMax)
    ratios_.push_back(ratio);
  else
    ratios_[static_cast<std::size_t>(steps_) % kRatiosMax] = ratio;
  if (++steps_ < next_) return false;
  next_ *= 2;
  return true;
}

double ProfileCheck::median() const { return engine::median(ratios_); }

RunCheck::RunCheck(const JobSetup& setup, const ParallelPlan& plan, std::int32_t cores,
                   std::string began)
    : plan_(plan) {
  const bool crowded = !crowded_cores(plan, setup.job.cluster, cores).empty();
  if (!setup.costs || setup.job.balancer.adaptive_correction || crowded) return;
  profile_ = setup.profile.file;
  note_.run = setup.job.job.run_dir.string();
  note_.date = std::move(began);
  note_.profile = setup.profile.measured_at;
}

void RunCheck::add(const Prediction& prediction, std::span<const observe::TraceEvent> events) {
  if (profile_.empty()) return;
  const auto measured_ms = measured_stage_ms(plan_.stages.size(), events);
  if (!check_.add(prediction.profile_stage_ms, measured_ms)) return;
  note_.ratio = check_.median();
  note_.steps = check_.steps();
  static_cast<void>(add_note(profile_, note_));
}

}  // namespace troupe::engine
