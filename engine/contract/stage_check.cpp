#include "engine/contract/stage_check.hpp"

#include <memory>
#include <optional>
#include <utility>

#include "engine/contract/fixed_values.hpp"
#include "engine/contract/leaks.hpp"
#include "engine/contract/moves.hpp"
#include "engine/contract/slices.hpp"
#include "engine/contract/slopes.hpp"
#include "engine/contract/states.hpp"
#include "engine/contract/views.hpp"
#include "runtime/observe/plan_words.hpp"
#include "runtime/vocabulary/first_line.hpp"
#include "runtime/vocabulary/user_code.hpp"

namespace troupe::engine {

namespace {

/// Of the largest value: what sums in another order may differ by.
constexpr double kRounding = 1e-9;

/// Holds one stage against its promises.
class Check {
 public:
  Check(const StageBench& bench, StageId id, const ContractOptions& options, StageVerdict& verdict)
      : bench_(bench),
        id_(id),
        options_(options),
        verdict_(verdict),
        inputs_(bench.draw_inputs(id)) {}

  /// What a stage throws beside rounds, which name their calls, ends it.
  void run(const StageBench* halves) {
    const auto done = call_guarded(Errc::internal, [&]() -> Status {
      hold_all(halves);
      return Done{};
    });
    if (!done.ok())
      breach(
          "`parameters`, `state` or `abandon` beside a round " + first_line(done.error().message),
          "these functions of the stage");
  }

 private:
  void hold_all(const StageBench* halves) {
    begin("rows");
    auto state = bench_.state(id_);
    stage_ = made(state);
    if (!stage_) return;
    state_.emplace(std::move(state).value());
    fixed_ = FixedValues(bench_, *stage_);
    const auto first = round(*stage_, {});
    if (!first) return;
    kept();
    same_bits(*first);
    gradients(*first);
    split(*first);
    order(*first);
    built_in(*first);
    packing(*first);
    parts();
    pieces();
    slice();
    abandon(*first);
    offload(*first);
    shown(*first);
    memory();
    frozen();
    states(*first);
    moved(*first);
    if (halves != nullptr) cut(*halves);
  }

  std::unique_ptr<StageProgram> made(const Result<StateStore>& state, bool built_in = false) {
    auto made = call_guarded(Errc::internal, [&]() -> Result<std::unique_ptr<StageProgram>> {
      if (!state.ok()) return state.error();
      return built_in ? bench_.make_built_in(id_, state.value()) : bench_.make(id_, state.value());
    });
    if (made.ok()) return std::move(made).value();
    breach(to_string(made.error()),
           "the layers' parameters, and `make` of the family or stage kind");
    return nullptr;
  }

  void begin(const std::string& promise) {
    promise_ = promise;
    if (options_.on_begin) options_.on_begin(verdict_.stage, promise);
  }
  void kept() {
    if (verdict_.breaches.empty() || verdict_.breaches.back().promise != promise_)
      verdict_.kept.push_back(promise_);
  }
  void breach(const std::string& found, const std::string& fix) {
    verdict_.breaches.push_back({promise_, found, fix});
  }

  /// Whether no bytes count as held any more.
  bool nothing_left(const StageOutcome& outcome, const std::string& when, const std::string& fix) {
    if (outcome.left == Bytes{}) return true;
    breach(std::to_string(outcome.left.count()) + " bytes count as held " + when, fix);
    return false;
  }

  std::optional<StageOutcome> round(StageProgram& stage, const RoundOptions& how) {
    return taken(bench_.round(stage, id_, how, inputs_));
  }
  std::optional<StageOutcome> round_in(Cut cut) {
    return taken(bench_.round(*stage_, id_, {}, bench_.draw_inputs(id_, cut), cut));
  }
  template <class Made>
  std::optional<Made> taken(Result<Made> made) {
    if (made.ok()) return std::move(made).value();
    breach(made.error().message, "forward and backward of the layers");
    return std::nullopt;
  }

  void same(const StageOutcome& a, const StageOutcome& b, const std::string& what,
            const std::string& fix, double tolerance = 0) {
    if (engine::same_bits(a, b)) return;
    const double off = difference(a, b);
    if (off > tolerance || tolerance == 0) breach(what + difference_words(off), fix);
  }

  void same_bits(const StageOutcome& first) {
    begin("same bits");
    const std::string fix = "state that is kept between calls, random numbers, sums in any order";
    if (const auto second = round(*stage_, {})) same(first, *second, "a second round", fix);
    if (const auto other = made(bench_.state(id_)))
      if (const auto second = round(*other, {}))
        same(first, *second, "a round of the same stage, made anew,", fix);
    kept();
  }

  void split(const StageOutcome& first) {
    begin("split backward");
    if (const auto split = round(*stage_, {.is_split = true})) {
      same(first, *split, "input gradients, then weight gradients: what they give",
           "weight gradients that are put off (kernels/deferred_gradients.hpp)");
      nothing_left(*split, "at the end", "`activations`");
    }
    kept();
  }

  void order(const StageOutcome& first) {
    begin("order of parts");
    if (const auto last_first = round(*stage_, {.is_last_first = true}))
      same(first, *last_first, "backwards from the last part on: what they give",
           "what one part leaves for another", kRounding);
    kept();
  }

  /// What runs layers in another way computes what they say.
  void built_in(const StageOutcome& first) {
    const std::string kind = bench_.kind_of(id_);
    if (kind.empty()) return;
    begin("built-in");
    if (const auto own = made(bench_.state(id_), /*built_in=*/true))
      if (const auto theirs = round(*own, {}))
        same(*theirs, first, "what stage kind '" + kind + "' gives, beside the engine's own stage,",
             "how the kind runs layers; what is to be computed otherwise is a family's", kRounding);
    kept();
  }

  /// `outcome`: of this cut.
  void same_by_sample(const StageOutcome& alone, const StageOutcome& outcome, Cut cut,
                      const std::string& what, const std::string& fix) {
    const double off =
        difference_by_sample(bench_.plan(), id_, {*bench_.iteration(Cut::alone), alone},
                             {*bench_.iteration(cut), outcome});
    if (off > kRounding) breach(what + difference_words(off) + " from what each gives alone", fix);
  }

  /// What samples give in a cut, against what each gives alone.
  void held_in(Cut cut, const std::string& what, const std::string& fix) {
    const auto alone = round_in(Cut::alone), other = round_in(cut);
    if (alone && other) same_by_sample(*alone, *other, cut, what, fix);
  }

  void packing(const StageOutcome& first) {
    begin("packing");
    if (const auto alone = round_in(Cut::alone))
      same_by_sample(*alone, first, Cut::planned, "samples beside each other: what they give",
                     "what a layer computes over all rows: a sample's, a picture's and a window's "
                     "are a segment by themselves (PackedBatch::segments)");
    kept();
  }

  void parts() {
    if (bench_.iteration(Cut::deferred) == nullptr) return;
    begin("parts");
    held_in(Cut::deferred,
            "a microbatch in two parts, of which one waits for another one of the llm: what "
            "samples give",
            "what is kept by microbatch: a part is a microbatch and a part of it (PartKey)");
    kept();
  }

  void pieces() {
    if (bench_.iteration(Cut::pieces) == nullptr) return;
    begin("pieces");
    const std::string fix = "what goes by a sample: `IterationPlan::sample` has that of a unit";
    held_in(Cut::pieces, "two pieces of a sample in one part: what samples give", fix);
    held_in(Cut::pieces_apart, "two pieces of a sample in two parts: what samples give", fix);
    kept();
  }

  void slice() {
    begin("slice");
    if (const auto rounds =
            taken(call_guarded(Errc::internal, [&] { return sliced_rounds(bench_, id_); })))
      same(rounds->whole, rounds->slice, "what its node's slice of a plan gives, beside all of it,",
           "what goes by a sample's number, by a message's place, or by all samples of the batch");
    kept();
  }

  void abandon(const StageOutcome& first) {
    begin("abandon");
    given_up({.is_forward_only = true}, first);
    given_up({.is_split = true, .is_given_up = true}, first);
    kept();
  }

  /// A round that ends by `abandon`, and one behind it.
  void given_up(const RoundOptions& how, const StageOutcome& first) {
    const auto dropped = round(*stage_, how);
    if (!dropped) return;
    nothing_left(*dropped, "behind `abandon`", "`abandon` and `activations`");
    if (const auto again = round(*stage_, {}))
      same(first, *again, "a round behind one that was given up", "what `abandon` leaves");
  }

  void offload(const StageOutcome& first) {
    if (!bench_.offloads(id_)) return;
    begin("offload");
    const std::size_t before = verdict_.breaches.size();
    put_away(first, nullptr, "");
    const auto late = late_device();
    if (verdict_.breaches.size() == before)
      put_away(first, late.get(), "on a device that completes work late, ");
    kept();
  }

  /// A round with what parts keep in host memory meanwhile.
  void put_away(const StageOutcome& first, Device* device, const std::string& where) {
    const std::string fix =
        "`offload` and `fetch`; host memory has its contents when the work has "
        "completed (Device::to_host)";
    const auto away = bench_.round(*stage_, id_, {.is_offloaded = true, .device = device}, inputs_);
    if (!away.ok()) return breach(where + away.error().message, fix);
    same(first, away.value(),
         where + "what parts keep in host memory until their backward: what they give", fix);
    nothing_left(away.value(), where + "at the end", "`fetch` and `activations`");
  }

  /// What `show_to` returns; nothing: it throws.
  std::optional<bool> shows_to(StageProgram& stage, Viewer* viewer) {
    const auto told =
        call_guarded(Errc::internal, [&]() -> Result<bool> { return stage.show_to(viewer); });
    if (told.ok()) return told.value();
    breach("show_to: " + first_line(told.error().message), "`show_to`");
    return std::nullopt;
  }

  void shown(const StageOutcome& first) {
    begin("shown");
    auto own = made(bench_.state(id_));
    if (!own) return;
    Views views;
    ViewedStage stage(std::move(own), views);
    if (!shows_to(stage, &views).value_or(false)) return;  // Whether it shows is its affair.
    const std::string fix = "where the stage shows what it computes (`Viewer::show`)";
    if (const auto seen = round(stage, {})) {
      same(first, *seen, "what a stage gives that somebody looks at", fix);
      const auto wrong = wrong_view(bench_.plan(), bench_.iteration(), id_, inputs_, *seen, views);
      if (!wrong.empty()) breach(wrong, fix);
    }
    views.clear();
    if (!shows_to(stage, nullptr)) return;
    if (round(stage, {}) && !views.all().empty()) {
      const Views::View& late = views.all().front();
      breach(words_of(bench_.plan(), late.module, late.kind) +
                 " are shown after the stage was told that nobody looks",
             "`show_to`");
    }
    kept();
  }

  void memory() {
    begin("memory");
    const auto bytes = kept_by_each([this] {
      const auto outcome = round(*stage_, {});
      if (!outcome || !nothing_left(*outcome, "at the end", "`activations`")) return false;
      stage_->abandon();
      return true;
    });
    if (!bytes) return;
    if (*bytes > 0)
      verdict_.breaches.push_back(leak_of(bench_, id_, *bytes, [this] { begin(promise_); }));
    kept();
  }

  void gradients(const StageOutcome& first) {
    begin("gradients");
    SlopeOptions how{options_.seed, options_.tolerance};
    how.on_begin = [this] { begin(promise_); };
    const auto wrong = wrong_gradients(bench_, *stage_, id_, inputs_, first, how);
    if (!wrong.ok()) return breach(wrong.error().message, "forward of the layers");
    for (const WrongGradient& one : wrong.value())
      breach("of " + one.of + ": " + number_words(one.gradient) +
                 " along a direction, where the loss changes by " + number_words(one.slope),
             "its backward");
    kept();
  }

  void frozen() {
    if (fixed_.empty()) return;
    begin("frozen");
    for (const auto& [found, fix] : fixed_.faults()) breach(found, fix);
    kept();
  }

  /// The stage goes, for its memory; one that is made anew on the same state comes in its place.
  void states(const StageOutcome& first) {
    if (first.groups.empty()) return;
    fixed_ = {};
    stage_.reset();
    for (const StatePromise& one : state_promises(bench_, id_)) {
      begin(one.name);
      const auto held =
          call_guarded(Errc::internal, [&] { return one.hold(bench_, id_, inputs_, *state_); });
      if (!held.ok()) breach(held.error().message, one.fix);
      kept();
    }
    stage_ = made(*state_);
  }

  /// The stage is gone then.
  void moved(const StageOutcome& first) {
    if (first.groups.empty() || !stage_) return;
    begin("moved");
    const std::string fix =
        "what is kept of where the state was, what follows from parameters, and "
        "what is bound to a thread";
    const auto rounds = call_guarded(Errc::internal, [&] {
      return moved_rounds(bench_, id_, inputs_, std::move(stage_), *state_);
    });
    if (!rounds.ok()) return breach(rounds.error().message, fix);
    for (const MovedRound& one : rounds.value())
      same(one.stayed, one.moved,
           "behind a step of the optimizer, a round of what has moved to " + one.to + ",", fix);
    kept();
  }

  void cut(const StageBench& halves) {
    const auto stages = halves.halves_in(bench_, id_);
    if (stages.empty()) return;
    begin("cut");
    for (const StageId half : stages)
      if (const auto ran = halves.run_alone(half); !ran.ok())
        breach(observe::stage_words(halves.plan(), halves.plan().at(half)) +
                   " by itself: " + ran.error().message,
               "`hidden_width` of the family's `describe`, and what a layer has from another one "
               "beside its rows");
    kept();
  }

  const StageBench& bench_;
  StageId id_;
  const ContractOptions& options_;
  StageVerdict& verdict_;
  const StageRows inputs_;
  std::optional<StateStore> state_;
  std::unique_ptr<StageProgram> stage_;
  FixedValues fixed_;
  std::string promise_;
};

}  // namespace

void check_stage(const StageBench& bench, StageId id, const StageBench* halves,
                 const ContractOptions& options, StageVerdict& verdict) {
  Check(bench, id, options, verdict).run(halves);
}

}  // namespace troupe::engine
