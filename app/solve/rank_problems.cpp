// Items between data-parallel ranks.

#include <cmath>

#include "app/solve/balancing_problems.hpp"
#include "balancer/ranks/node_wise.hpp"
#include "balancer/ranks/post_balance.hpp"
#include "balancer/ranks/rearrangement.hpp"

namespace troupe::app {

namespace {

constexpr std::int64_t kLengthMax = (std::int64_t{1} << 32) - 1;
constexpr std::int64_t kIndexMax = INT32_MAX;

Json places(const balancer::Rearrangement& rearrangement) {
  Json batches = Json::array();
  for (std::size_t b = 0; b < rearrangement.batch_count(); ++b) {
    Json batch = Json::array();
    for (const auto& item : rearrangement.batch(b)) batch.push_back({item.rank, item.index});
    batches.push_back(std::move(batch));
  }
  return batches;
}

balancer::PostBalanceOptions read_options(Reader& in) {
  balancer::PostBalanceOptions options;
  options.alpha = in.number_or("alpha", 1, 0, kTimeMax);
  options.beta = in.number_or("beta", 0, 0, kTimeMax);
  options.tolerance = in.number_or("tolerance", 0, 0, kTimeMax);
  if (in.has("max_load")) options.max_load = in.number("max_load", 0, HUGE_VAL);
  return options;
}

Result<Json> solve_post_balance(const Json& input) {
  Reader in(input, "input");
  in.only(
      {"lengths", "algorithm", "padding", "attention", "alpha", "beta", "tolerance", "max_load"});
  const auto lengths = read_rows(in, "lengths", 0, kLengthMax);
  auto options = read_options(in);
  const auto name = in.text_or("algorithm", "auto");
  balancer::PhaseKind kind;
  kind.padding = in.boolean_or("padding", false);
  const auto attention = in.text_or("attention", "flash");
  kind.padded_attention = attention == "padded";
  if (attention != "flash" && attention != "padded")
    in.fail("attention", "expected `flash` or `padded`, found " + attention);
  if (!in.ok()) return in.error();
  if (name != "auto") {
    const auto algorithm = balancer::post_balance_from(name);
    if (!algorithm.ok()) return algorithm.error();
    options.algorithm = algorithm.value();
  }
  const auto [balanced, elapsed_ms] = timed([&] {
    return name == "auto" ? balancer::post_balance_phase(lengths, kind, options)
                          : balancer::post_balance(lengths, options);
  });
  if (!balanced.ok()) return balanced.error();
  return Json{{"batches", places(balanced.value().rearrangement)},
              {"loads", balanced.value().loads},
              {"compute_ms", elapsed_ms}};
}

void read_matrix(Reader& in, balancer::NodeWiseProblem& problem) {
  const Json& matrix = in.array("volume");
  problem.rank_count = static_cast<std::int32_t>(matrix.size());
  for (std::size_t rank = 0; rank < matrix.size() && in.ok(); ++rank) {
    const std::string row = "volume[" + std::to_string(rank) + "]";
    if (!matrix[rank].is_array() || matrix[rank].size() != matrix.size()) {
      in.fail(row, "expected an array of " + std::to_string(matrix.size()) +
                       " numbers, one per batch; there are as many batches as ranks");
      return;
    }
    for (std::size_t batch = 0; batch < matrix.size() && in.ok(); ++batch) {
      const Json& value = matrix[rank][batch];
      if (!value.is_number() || !(value.get<double>() >= 0 && value.get<double>() <= kTimeMax)) {
        in.fail(row + "[" + std::to_string(batch) + "]",
                "expected a number >= 0, found " + value.dump());
      } else if (value.get<double>() > 0) {
        problem.volumes.push_back({static_cast<std::int32_t>(rank),
                                   static_cast<std::int32_t>(batch), value.get<double>()});
      }
    }
  }
}

void read_triples(Reader& in, balancer::NodeWiseProblem& problem) {
  problem.rank_count = static_cast<std::int32_t>(in.integer("ranks", 1, 1'000'000));
  const Json& triples = in.array("triples");
  for (std::size_t i = 0; i < triples.size() && in.ok(); ++i) {
    const Json& triple = triples[i];
    const bool shaped = triple.is_array() && triple.size() == 3 && triple[0].is_number_integer() &&
                        triple[1].is_number_integer() && triple[2].is_number();
    const auto below = [&](const Json& index) {
      return index.get<std::int64_t>() >= 0 && index.get<std::int64_t>() < problem.rank_count;
    };
    if (!shaped || !below(triple[0]) || !below(triple[1]) ||
        !(triple[2].get<double>() >= 0 && triple[2].get<double>() <= kTimeMax)) {
      in.fail("triples[" + std::to_string(i) + "]",
              "expected [rank, batch, volume >= 0] with rank and batch below " +
                  std::to_string(problem.rank_count) + ", found " + triple.dump());
    } else {
      problem.volumes.push_back(
          {triple[0].get<std::int32_t>(), triple[1].get<std::int32_t>(), triple[2].get<double>()});
    }
  }
}

Result<Json> solve_node_wise(const Json& input) {
  Reader in(input, "input");
  in.only({"volume", "triples", "ranks", "ranks_per_node", "node_ranks", "time_limit_ms"});
  balancer::NodeWiseProblem problem;
  if (in.has("volume") == in.has("triples"))
    in.fail("volume", "expected either `volume`, or `triples` with `ranks`");
  if (in.ok() && in.has("volume")) read_matrix(in, problem);
  if (in.ok() && in.has("triples")) read_triples(in, problem);
  if (in.has("ranks_per_node") && in.has("node_ranks"))
    in.fail("node_ranks", "expected either `ranks_per_node` or `node_ranks`");
  if (in.has("node_ranks")) {
    for (const auto ranks : in.integers("node_ranks", 1, kIndexMax))
      problem.node_ranks.push_back(static_cast<std::int32_t>(ranks));
    if (problem.node_ranks.empty()) in.fail("node_ranks", "expected a number for each node");
  } else {
    problem.ranks_per_node = static_cast<std::int32_t>(in.integer("ranks_per_node", 1, kIndexMax));
  }
  const double time_limit_ms = in.number_or("time_limit_ms", 1000, kTimeMin, kTimeMax);
  if (!in.ok()) return in.error();
  const auto [found, elapsed_ms] =
      timed([&] { return balancer::assign_node_wise_ilp(problem, time_limit_ms); });
  if (!found.ok()) return found.error();
  const auto& node_wise = found.value();
  return Json{{"rank_of_batch", node_wise.rank_of_batch},
              {"inter_node_max", node_wise.inter_node_max},
              {"inter_node_total", node_wise.inter_node_total},
              {"lower_bound", node_wise.lower_bound},
              {"optimal", node_wise.optimal},
              {"compute_ms", elapsed_ms}};
}

std::vector<std::vector<balancer::ItemRef>> read_places(Reader& in, const std::string& key) {
  std::vector<std::vector<balancer::ItemRef>> batches;
  const Json& outer = in.array(key);
  for (std::size_t b = 0; b < outer.size() && in.ok(); ++b) {
    const std::string name = key + "[" + std::to_string(b) + "]";
    if (!outer[b].is_array()) in.fail(name, "expected an array of [rank, index]");
    batches.emplace_back();
    for (std::size_t i = 0; in.ok() && i < outer[b].size(); ++i) {
      const Json& item = outer[b][i];
      const auto fits = [](const Json& index) {
        return index.is_number_integer() && index.get<std::int64_t>() >= 0 &&
               index.get<std::int64_t>() <= kIndexMax;
      };
      if (item.is_array() && item.size() == 2 && fits(item[0]) && fits(item[1])) {
        batches.back().push_back({item[0].get<std::int32_t>(), item[1].get<std::int32_t>()});
      } else {
        in.fail(name + "[" + std::to_string(i) + "]",
                "expected [rank, index], both integers >= 0, found " + item.dump());
      }
    }
  }
  return batches;
}

Error in_field(Error error, const char* field) {
  error.where = std::string("input.") + field + (error.where.empty() ? "" : ", " + error.where);
  return error;
}

Result<Json> solve_rearrange(const Json& input) {
  Reader in(input, "input");
  in.only({"first", "second"});
  const auto first_places = read_places(in, "first");
  const auto second_places = read_places(in, "second");
  if (!in.ok()) return in.error();
  const auto first = balancer::Rearrangement::create(first_places);
  if (!first.ok()) return in_field(first.error(), "first");
  const auto second = balancer::Rearrangement::create(second_places);
  if (!second.ok()) return in_field(second.error(), "second");
  const auto [composed, elapsed_ms] =
      timed([&] { return balancer::compose(first.value(), second.value()); });
  if (!composed.ok()) return in_field(composed.error(), "second");
  return Json{{"composed", places(composed.value())},
              {"inverse", places(composed.value().inverse())},
              {"compute_ms", elapsed_ms}};
}

}  // namespace

std::vector<Problem> rank_problems() {
  return {
      {"post-balance", "exchanges items between ranks for one phase (OrchMLLM 5.1)",
       "lengths: [[integer in [0, 2^32)...] per rank], tokens\n"
       "algorithm: `auto` (default), `no-padding`, `padding`, `quadratic`, `padded-attention`,\n"
       "  or the first, third and fourth with `-search` for the improved variant\n"
       "padding: true or false, default false, with `auto`: load is count x longest\n"
       "attention: `flash` (default) or `padded`, with `auto`\n"
       "alpha, beta: number >= 0, default 1 and 0, cost per token and per squared token\n"
       "tolerance: tokens >= 0, default 0, for `quadratic`\n"
       "max_load: number?, no batch may have a larger load",
       solve_post_balance},
      {"node-wise", "places batches on ranks so that little leaves a node (OrchMLLM 5.2.2)",
       "volume: [[number >= 0 per batch] per origin rank], or\n"
       "triples: [[rank, batch, volume]...] with ranks: integer >= 1\n"
       "ranks_per_node: integer >= 1, or\n"
       "node_ranks: [integer >= 1 per node], where nodes hold unlike numbers of ranks\n"
       "time_limit_ms: number > 0, default 1000, for the integer program",
       solve_node_wise},
      {"rearrange", "composes two rearrangements and inverts the result (OrchMLLM 6)",
       "first: [[[rank, index]...] per new batch], where each item was\n"
       "second: the same over the result of first",
       solve_rearrange},
  };
}

}  // namespace troupe::app
