#include "engine/reference/reference.hpp"

#include <ATen/ops/cat.h>
#include <ATen/ops/from_blob.h>
#include <ATen/ops/full.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros_like.h>
#include <torch/csrc/autograd/autograd.h>

#include <cmath>

#include "engine/execution/layer_faults.hpp"
#include "engine/execution/loss_shape.hpp"
#include "engine/execution/own_step.hpp"
#include "engine/execution/teacher_packing.hpp"
#include "engine/reference/layer_calls.hpp"
#include "engine/reference/whole_model.hpp"
#include "runtime/plugins/user_calls.hpp"
#include "runtime/state/gradient_norm.hpp"
#include "runtime/vocabulary/module_rows.hpp"

namespace troupe::engine {

namespace {

/// A trainable parameter with everything the oracle keeps about it.
struct Trained {
  std::string name;
  std::vector<at::Tensor> uses;  ///< Leaves; two for a tied parameter.
  at::Tensor gradient;           ///< Sum over samples and uses; fp64 for fp64, else fp32.
  std::vector<state::AdamWState> optimizers;  ///< Per use.
  double learning_rate_scale = 1;
  models::UpdateRule rule;  ///< In AdamW's place; empty: AdamW.
};

class Oracle {
 public:
  Oracle(const JobSetup& setup, WholeModel model) : setup_(setup), model_(std::move(model)) {
    for (std::size_t m = 0; m < setup.model.modules.size(); ++m)
      for (auto& layer : model_.layers(ModuleId{m}))
        for (auto& parameter : layer->parameters())
          if (parameter.value.requires_grad()) add(parameter, setup.learning_rate_scales[m]);
  }

  WholeModel& model() { return model_; }

  Result<ReferenceLoop::StepResult> step(std::int64_t number, const ReferenceBatch& batch,
                                         const StepPolicy& policy) {
    ReferenceLoop::StepResult result;
    for (const auto& sample : batch.samples) {
      result.trained_tokens += sample.trained_tokens;
      result.tokens += sample.llm_tokens;
      result.ids.push_back(sample.id);
    }
    for (auto& trained : trained_) trained.gradient.zero_();
    count_segments(batch);
    auxiliary_.clear();
    PartLoss loss;
    for (const auto& sample : batch.samples) {
      work_ = work_words({sample.id}, number);
      auto value = train(sample, result.trained_tokens);
      if (!value.ok()) return std::move(value).error();
      loss.sum += value.value();
      if (!std::isfinite(value.value())) loss.nonfinite_samples.push_back(sample.id);
    }
    std::vector<GroupNorm> norms;
    for (std::size_t i = 0; i < trained_.size(); ++i) {
      norms.push_back(measure(GroupId{i}, trained_[i]));
    }
    result.outcome = decide_step(number, result.trained_tokens, {loss}, auxiliary_, norms, policy);
    if (number == 1) remember_gradients();
    if (result.outcome.decision.commit) update(number, result.outcome.decision);
    return result;
  }

  const std::map<std::string, at::Tensor>& first_gradients() const { return first_gradients_; }

  ReferenceState state() {
    ReferenceState state;
    for (auto& trained : trained_)
      for (std::size_t i = 0; i < trained.uses.size(); ++i)
        state.add(trained.name, trained.uses[i], trained.optimizers[i]);
    state.add_frozen(model_);
    return state;
  }

 private:
  void add(models::Parameter& parameter, double scale) {
    for (auto& trained : trained_) {
      if (trained.name != parameter.name) continue;
      trained.uses.push_back(parameter.value);
      trained.optimizers.push_back(state::make_adamw_state(parameter.value));
      return;
    }
    const bool fp64 = parameter.value.scalar_type() == at::kDouble;
    const auto type = fp64 ? at::kDouble : at::kFloat;
    trained_.push_back({parameter.name,
                        {parameter.value},
                        at::zeros_like(parameter.value.detach(), type),
                        {state::make_adamw_state(parameter.value)},
                        scale,
                        parameter.update});
  }

  /// Contributions to a parameter with a rule of its own count in no norm.
  static GroupNorm measure(GroupId id, const Trained& trained) {
    if (trained.rule) return {id, 0, state::finite(trained.gradient)};
    const double squared = state::squared_norm(trained.gradient);
    return {id, squared, std::isfinite(squared)};
  }

  /// Of each module, in the whole batch.
  void count_segments(const ReferenceBatch& batch) {
    const auto encoders = media_modules(setup_);
    std::vector<SampleShape> shapes;
    for (const auto& sample : batch.samples)
      shapes.push_back(data::shape_of(sample, setup_.data, encoders));
    for (std::size_t m = 0; m < setup_.model.modules.size(); ++m)
      segments_[ModuleId{m}] = segment_count(setup_.model, ModuleId{m}, shapes);
  }

  /// All layers of a module, and what they add to the loss.
  at::Tensor run(ModuleId module, at::Tensor rows, models::PackedBatch& batch) {
    batch.losses = std::make_shared<models::AuxiliaryLosses>();
    rows =
        run_layers(setup_.model.at(module), model_.layers(module), std::move(rows), batch, work_);
    for (const models::AuxiliaryLoss& loss : *batch.losses)
      auxiliary_.push_back(
          {setup_.model.at(module).name + "." + loss.name,
           {},
           {},
           {},
           models::contribution(loss, models::sum_of(loss).item<double>(), segments_[module])});
    models::append_roots(*batch.losses, segments_[module], roots_, root_gradients_);
    return rows;
  }

  /// One picture or audio window through its encoder and projector.
  at::Tensor encode(ModuleId encoder, models::PackedBatch& item) {
    at::Tensor rows;
    for (ModuleId module = encoder; setup_.model.at(module).kind != ModuleKind::llm;
         module = setup_.model.at(module).next.front())
      rows = run(module, std::move(rows), item);
    return rows;
  }

  std::vector<at::Tensor> encode_images(const std::vector<data::ImagePatches>& images,
                                        ModuleId encoder, const VisionInput& vision) {
    std::vector<at::Tensor> rows;
    for (const auto& image : images) {
      models::PackedBatch item;
      const std::int64_t patches = std::int64_t{image.grid_height} * image.grid_width;
      item.segments = {patches};
      item.grids = {{image.grid_height, image.grid_width}};
      item.input = at::from_blob(const_cast<float*>(image.patches.data()),
                                 {patches, vision.columns()}, at::kFloat);
      rows.push_back(encode(encoder, item));
    }
    return rows;
  }

  std::vector<at::Tensor> encode_audio(const std::vector<data::AudioWindow>& windows,
                                       ModuleId encoder, const AudioInput& audio) {
    std::vector<at::Tensor> rows;
    for (const auto& window : windows) {
      models::PackedBatch item;
      item.segments = {data::audio_shape(window.frames, audio, 0).hidden_rows};
      item.input_segments = {window.frames};
      item.input = at::from_blob(const_cast<float*>(window.mel.data()),
                                 {window.frames, audio.mel_bins}, at::kFloat);
      rows.push_back(encode(encoder, item));
    }
    return rows;
  }

  /// Summed token loss of one sample; adds its gradients, already divided by the batch's tokens.
  Result<double> train(const data::DecodedSample& sample, TokenCount trained_tokens) {
    try {
      return train_unguarded(sample, trained_tokens);
    } catch (...) {
      return layer_fault(work_);
    }
  }

  Result<double> train_unguarded(const data::DecodedSample& sample, TokenCount trained_tokens) {
    roots_.clear();
    root_gradients_.clear();
    const auto encoders = media_modules(setup_);
    std::vector<std::vector<at::Tensor>> images, audio;
    data::MarkerRows image_rows, audio_rows;
    for (std::size_t e = 0; e < encoders.vision.size(); ++e) {
      images.push_back(
          encode_images(sample.images[e], encoders.vision[e], setup_.data.vision[e].input));
      auto& rows = image_rows.emplace_back();
      for (const auto& image : images.back()) rows.push_back(image.size(0));
    }
    for (std::size_t e = 0; e < encoders.audio.size(); ++e) {
      audio.push_back(encode_audio(sample.audio[e], encoders.audio[e], setup_.data.audio[e].input));
      auto& rows = audio_rows.emplace_back(static_cast<std::size_t>(sample.text.audio_markers));
      for (std::size_t i = 0; i < audio.back().size(); ++i)
        rows[static_cast<std::size_t>(sample.audio[e][i].marker)] += audio.back()[i].size(0);
    }
    auto text = data::expand_text(sample.text, image_rows, audio_rows);
    if (!text.ok()) return std::move(text).error();
    const std::vector<std::int64_t> ids(text.value().tokens.begin(), text.value().tokens.end());
    const std::vector<std::int64_t> labels(text.value().labels.begin(), text.value().labels.end());
    const SampleShape shape = data::shape_of(sample, setup_.data, encoders);
    const std::int32_t only = 0;
    auto packed = pack_text_shapes(setup_.model, {&shape, 1}, {&only, 1});
    if (!packed.ok()) return std::move(packed).error();
    models::PackedBatch& batch = packed.value();
    batch.input = at::tensor(ids, at::kLong);
    batch.labels = at::tensor(labels, at::kLong);
    const auto add = [&](const std::vector<std::vector<at::Tensor>>& of_encoders,
                         const std::vector<std::vector<std::int64_t>>& positions) {
      for (std::size_t e = 0; e < of_encoders.size(); ++e)
        if (!of_encoders[e].empty())
          batch.media.push_back({at::tensor(positions[e], at::kLong), at::cat(of_encoders[e])});
    };
    add(images, text.value().image_positions);
    add(audio, text.value().audio_positions);
    if (auto taught = teach(shape, text.value(), batch); !taught.ok())
      return std::move(taught).error();
    const at::Tensor rows = run(setup_.model.llm(), {}, batch);
    const ModuleSpec& llm = setup_.model.at(setup_.model.llm());
    if (auto fine = check_losses(llm, rows, 1, " for " + work_); !fine.ok())
      return std::move(fine).error();
    if (rows.requires_grad()) {
      roots_.push_back(rows);
      root_gradients_.push_back(at::full(rows.sizes(), 1.0 / static_cast<double>(trained_tokens),
                                         rows.options().requires_grad(false)));
    }
    if (!roots_.empty()) {
      const plugins::CallingUser calling(backward_words(work_));
      torch::autograd::backward(roots_, root_gradients_);
      collect();
    }
    roots_.clear();
    root_gradients_.clear();
    return rows.detach().to(at::kDouble).item<double>();
  }

  /// Each teacher's rows for one sample.
  Status teach(const SampleShape& shape, const data::ExpandedText& text,
               models::PackedBatch& batch) {
    for (std::size_t m = 0; m < setup_.model.modules.size(); ++m) {
      const ModuleSpec& spec = setup_.model.modules[m];
      if (spec.kind != ModuleKind::teacher || text_rows(shape) == 0) continue;
      const auto positions = at::tensor(text_positions_of(text, 0), at::kLong);
      const std::int32_t only = 0;
      auto packed = pack_teacher_shapes({&shape, 1}, {&only, 1});
      if (!packed.ok()) return std::move(packed).error();
      packed.value().input = batch.input.index_select(0, positions);
      batch.taught.push_back({spec.name, positions, run(ModuleId{m}, {}, packed.value())});
    }
    return Done{};
  }

  void collect() {
    for (auto& trained : trained_) {
      for (auto& use : trained.uses) {
        if (!use.grad().defined()) continue;
        trained.gradient.add_(use.grad());
        use.mutable_grad() = at::Tensor{};
      }
    }
  }

  void remember_gradients() {
    for (const auto& trained : trained_) first_gradients_[trained.name] = trained.gradient.clone();
  }

  void update(std::int64_t step, const Decision& decision) {
    for (auto& trained : trained_)
      for (std::size_t i = 0; i < trained.uses.size(); ++i) {
        const double learning_rate = decision.learning_rate * trained.learning_rate_scale;
        if (trained.rule)
          own_step({trained.name, trained.uses[i], false, trained.rule}, trained.optimizers[i],
                   trained.gradient, step, learning_rate);
        else
          state::adamw_step(trained.uses[i], trained.optimizers[i], trained.gradient, setup_.adamw,
                            learning_rate, decision.clip, step);
      }
  }

  const JobSetup& setup_;
  WholeModel model_;
  std::vector<Trained> trained_;
  std::map<std::string, at::Tensor> first_gradients_;
  std::map<ModuleId, std::int64_t> segments_;       ///< Of the batch.
  std::vector<PartAuxiliary> auxiliary_;            ///< Of the batch so far.
  std::string work_;                                ///< The sample at hand, in words.
  std::vector<at::Tensor> roots_, root_gradients_;  ///< Of the sample, where its backward begins.
};

}  // namespace

Status train_reference(const JobSetup& setup, RunFolder& folder, const ReferenceOptions& options) {
  auto source = BatchSource::open(setup, options.data);
  if (!source.ok()) return std::move(source).error();
  auto model = WholeModel::create(setup);
  if (!model.ok()) return std::move(model).error();
  Oracle oracle(setup, std::move(model).value());
  if (auto loaded = load_resumed(options, oracle.state()); !loaded.ok()) return loaded;
  ReferenceLoop loop(setup, source.value(), folder, options);
  auto trained =
      loop.run([&](std::int64_t step, const ReferenceBatch& batch,
                   const StepPolicy& policy) { return oracle.step(step, batch, policy); },
               [&] { return oracle.state(); });
  if (!trained.ok()) return trained;
  if (setup.job.train.dump_gradients && options.resume.is_start())
    if (auto written = folder.write_first_gradients(oracle.first_gradients()); !written.ok())
      return written;
  return folder.write_model(oracle.model().parameters());
}

}  // namespace troupe::engine
