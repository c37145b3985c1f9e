#include "scheduler/cost/cost_model.hpp"

#include <algorithm>
#include <numeric>
#include <set>

#include "runtime/vocabulary/module_rows.hpp"
#include "runtime/vocabulary/nearest_word.hpp"

namespace troupe::scheduler {

namespace {

std::string shown(Parallelism parallelism) {
  return "tp " + std::to_string(parallelism.tp) + " cp " + std::to_string(parallelism.cp);
}

// The last size before a layer computes in another way, as a head does that cuts its logits into
// chunks: what it keeps and the time of its input gradient both fall there, which they do for no
// other reason; a single one may be a bad measurement.
double break_of(std::vector<ProfilePoint> points) {
  std::sort(points.begin(), points.end(),
            [](const auto& a, const auto& b) { return a.tokens < b.tokens; });
  const auto falls = std::adjacent_find(points.begin(), points.end(), [](auto& a, auto& b) {
    return a.tokens < b.tokens && b.linear.activation_bytes < a.linear.activation_bytes &&
           b.linear.input_grad_ms < a.linear.input_grad_ms;
  });
  return falls == points.end() ? CostCurve::kUnbroken : static_cast<double>(falls->tokens);
}

// Curves of one quantity; all-zero measurements (no attention) become the zero curve.
Result<CostCurve> fit_quantity(const LayerProfile& profile, PartCost ProfilePoint::*part,
                               double PartCost::*quantity) {
  std::vector<CurvePoint> points;
  bool any = false;
  for (const auto& point : profile.points) {
    points.push_back({static_cast<double>(point.tokens), point.*part.*quantity});
    any = any || points.back().value != 0;
  }
  if (!any && !points.empty()) return CostCurve{};
  auto curve = CostCurve::fit(std::move(points), break_of(profile.points));
  if (curve.ok()) return curve;
  Error error = curve.error();
  error.where = "profile of " + profile.kind + ", " + shown(profile.parallelism);
  return error;
}

// Kinds in the order of the profile file, by name.
Result<std::string> named_kind(const std::map<std::string, std::string>& kind_of,
                               const LayerSpec& layer) {
  const auto found = kind_of.find(layer.name);
  if (found != kind_of.end()) return found->second;
  std::vector<std::string> known;
  for (const auto& entry : kind_of) known.push_back(entry.first);
  const std::string nearest = nearest_word(layer.name, known);
  return Error{Errc::not_found, "the profile does not say which kind layer '" + layer.name + "' is",
               "profile",
               nearest.empty() ? "profile this model again" : "did you mean '" + nearest + "'?"};
}

}  // namespace

std::string_view to_string(CostOrigin origin) {
  switch (origin) {
    case CostOrigin::measured: return "measured";
    case CostOrigin::modelled: return "modelled";
    case CostOrigin::computed: return "computed";
  }
  return "unknown";
}

Result<PartCurves> CostModel::fit_part(const LayerProfile& profile, PartCost ProfilePoint::*part) {
  PartCurves curves;
  const std::pair<CostCurve*, double PartCost::*> wanted[] = {
      {&curves.forward, &PartCost::forward_ms},
      {&curves.input_grad, &PartCost::input_grad_ms},
      {&curves.weight_grad, &PartCost::weight_grad_ms},
      {&curves.activations, &PartCost::activation_bytes}};
  for (const auto& [curve, quantity] : wanted) {
    auto fitted = fit_quantity(profile, part, quantity);
    if (!fitted.ok()) return fitted.error();
    *curve = std::move(fitted).value();
  }
  return curves;
}

Result<CostModel> CostModel::create(const ModelGraph& graph, const Profile& profile) {
  CostModel model;
  model.graph_ = graph;
  for (const auto& entry : profile.profiles) {
    auto linear = fit_part(entry, &ProfilePoint::linear);
    if (!linear.ok()) return linear.error();
    auto attention = fit_part(entry, &ProfilePoint::attention);
    if (!attention.ok()) return attention.error();
    model.kinds_[entry.kind][entry.parallelism] = {
        std::move(linear).value(), std::move(attention).value(), entry.parameters, entry.origin};
  }
  std::map<std::string, std::string> kind_of;
  for (const auto& entry : profile.layers) kind_of[entry.layer] = entry.kind;
  for (const auto& module : graph.modules) {
    auto& names = model.kind_names_.emplace_back();
    for (const auto& layer : module.layers) {
      auto name = named_kind(kind_of, layer);
      if (!name.ok()) return name.error();
      const auto kind = model.kinds_.find(name.value());
      if (kind == model.kinds_.end() || !kind->second.contains(Parallelism{}))
        return Error{Errc::not_found,
                     "layer '" + layer.name + "' is of kind '" + name.value() +
                         "', which has no profile at tp 1, cp 1",
                     "profile", "profile this model again"};
      names.push_back(std::move(name).value());
    }
  }
  return model;
}

const CostModel::Kind& CostModel::kind(LayerId layer) const { return kinds_.at(kind_name(layer)); }

Result<const KindCurves*> CostModel::curves(LayerId layer, Parallelism parallelism) const {
  const Kind& entries = kind(layer);
  const auto found = entries.find(parallelism);
  if (found == entries.end()) {
    std::string known;
    for (const auto& entry : entries) known += (known.empty() ? "" : "; ") + shown(entry.first);
    return Error{Errc::not_found,
                 "no profile of layer '" +
                     graph_.at(layer.module).layers[static_cast<std::size_t>(layer.layer)].name +
                     "' at " + shown(parallelism) + "; there is " + known,
                 "profile",
                 "`troupe profile JOB --tp " + std::to_string(parallelism.tp) + " --cp " +
                     std::to_string(parallelism.cp) + "` adds it"};
  }
  return &found->second;
}

Result<LayerCost> CostModel::cost(LayerId layer, std::span<const TokenCount> lengths,
                                  Parallelism parallelism, double attention_share) const {
  const auto found = curves(layer, parallelism);
  if (!found.ok()) return found.error();
  const KindCurves& entry = *found.value();
  const auto tokens =
      static_cast<double>(std::accumulate(lengths.begin(), lengths.end(), TokenCount{0}));
  // The attention kernels run once per sequence, and so pay their constant.
  const auto value = [&](CostCurve PartCurves::*quantity, double share) {
    const CostCurve& attention = entry.attention.*quantity;
    double sum = (entry.linear.*quantity).at(tokens);
    for (const TokenCount length : lengths)
      sum += share * attention.at(static_cast<double>(length));
    return sum;
  };
  return LayerCost{
      value(&PartCurves::forward, attention_share), value(&PartCurves::input_grad, attention_share),
      value(&PartCurves::weight_grad, attention_share),
      Bytes{static_cast<std::int64_t>(value(&PartCurves::activations, 1))}, entry.parameters};
}

Result<LayerCost> CostModel::cost(LayerId layer, TokenCount tokens, Parallelism parallelism) const {
  return cost(layer, std::span{&tokens, 1}, parallelism);
}

Result<std::vector<LayerCost>> CostModel::module_costs(ModuleId module,
                                                       std::span<const TokenCount> lengths,
                                                       Parallelism parallelism,
                                                       double attention_share) const {
  std::vector<LayerCost> costs;
  for (std::size_t layer = 0; layer < graph_.at(module).layers.size(); ++layer) {
    const LayerId id{module, static_cast<std::int32_t>(layer)};
    auto full = cost(id, lengths, parallelism, attention_share);
    if (!full.ok()) return full.error();
    costs.push_back(std::move(full).value());
  }
  return frozen_aware(costs, graph_, module);
}

std::vector<Parallelism> CostModel::parallelisms(ModuleId module) const {
  std::set<Parallelism> common;
  for (std::size_t layer = 0; layer < graph_.at(module).layers.size(); ++layer) {
    const Kind& entries = kind({module, static_cast<std::int32_t>(layer)});
    if (layer == 0) {
      for (const auto& entry : entries) common.insert(entry.first);
    } else {
      std::erase_if(common, [&](Parallelism p) { return !entries.contains(p); });
    }
  }
  return {common.begin(), common.end()};
}

CostOrigin CostModel::origin(ModuleId module) const {
  auto worst = CostOrigin::measured;
  for (std::size_t layer = 0; layer < graph_.at(module).layers.size(); ++layer)
    for (const auto& entry : kind({module, static_cast<std::int32_t>(layer)}))
      worst = std::max(worst, entry.second.origin);
  return worst;
}

std::vector<KindError> CostModel::errors() const {
  static constexpr std::pair<CostCurve PartCurves::*, const char*> kCurves[] = {
      {&PartCurves::forward, "forward"},
      {&PartCurves::input_grad, "input gradient"},
      {&PartCurves::weight_grad, "weight gradient"},
      {&PartCurves::activations, "bytes kept"}};
  static constexpr std::pair<PartCurves KindCurves::*, const char*> kParts[] = {
      {&KindCurves::linear, ""}, {&KindCurves::attention, "attention "}};
  std::vector<KindError> errors;
  for (const auto& [name, entries] : kinds_)
    for (const auto& [parallelism, entry] : entries) {
      auto& worst =
          errors.emplace_back(KindError{name, modules_with(name), parallelism, {}, {}, {}});
      for (const auto& [part, prefix] : kParts)
        for (const auto& [member, curve] : kCurves) {
          const FitError left_out = (entry.*part.*member).leave_one_out_error();
          if (!worst.curve.empty() && left_out.mean <= worst.left_out.mean) continue;
          worst.curve = std::string(prefix) + curve;
          worst.left_out = left_out;
          worst.fit = (entry.*part.*member).fit_error();
        }
    }
  return errors;
}

std::vector<ModuleId> CostModel::modules_with(const std::string& kind) const {
  std::vector<ModuleId> modules;
  for (std::size_t m = 0; m < kind_names_.size(); ++m)
    if (std::find(kind_names_[m].begin(), kind_names_[m].end(), kind) != kind_names_[m].end())
      modules.push_back(ModuleId{m});
  return modules;
}

std::vector<TokenCount> sequence_lengths(const ModelGraph& graph, const SampleShape& sample,
                                         ModuleId module) {
  std::vector<TokenCount> lengths;
  switch (graph.at(module).kind) {
    case ModuleKind::llm: lengths.push_back(sample.llm_tokens); break;
    case ModuleKind::teacher:
      if (const TokenCount rows = text_rows(sample); rows > 0) lengths.push_back(rows);
      break;
    case ModuleKind::encoder:
      if (const auto* items = sample.items(module))
        for (const auto& item : *items) lengths.push_back(item.hidden_rows);
      break;
    case ModuleKind::projector:
      // A projector treats rows one by one, so that one length says all.
      if (const TokenCount rows = output_rows(graph, module, sample); rows > 0)
        lengths.push_back(rows);
      break;
  }
  return lengths;
}

double attention_share(const ModelGraph& graph, const SampleShape& sample, ModuleId module) {
  if (graph.at(module).attention == AttentionRule::causal) return 1;
  const TokenSample seen = token_sample(sample);
  return seen_pairs(seen) / seen_pairs({seen.tokens, {}});
}

bool is_head(const ModelGraph& graph, LayerId layer) {
  const auto& layers = graph.at(layer.module).layers;
  return layer.module == graph.llm() && layers.size() > 1 &&
         layer.layer == static_cast<std::int32_t>(layers.size()) - 1;
}

}  // namespace troupe::scheduler
