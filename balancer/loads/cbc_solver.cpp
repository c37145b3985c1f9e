#include "balancer/loads/cbc_solver.hpp"

#include <coin/Cbc_C_Interface.h>
#include <algorithm>
#include <cmath>
#include <memory>
#include <mutex>
#include <string>

namespace troupe::balancer {

namespace {

constexpr double kTolerance = 1e-6;

// Guards creation, solution and deletion alike: CBC keeps global state.
std::mutex& cbc_lock() {
  static std::mutex lock;
  return lock;
}

struct Delete {
  void operator()(Cbc_Model* model) const { Cbc_deleteModel(model); }
};

}  // namespace

std::int32_t LinearProgram::add_column(double cost, double lower, double upper, bool integer) {
  columns_.push_back({cost, lower, upper, integer});
  return static_cast<std::int32_t>(columns_.size()) - 1;
}

void LinearProgram::add_row(std::vector<Term> terms, Sense sense, double right) {
  rows_.push_back({std::move(terms), sense, right});
}

bool LinearProgram::accepts(const std::vector<double>& values) const {
  if (values.size() != columns_.size()) return false;
  for (std::size_t c = 0; c < columns_.size(); ++c) {
    const double slack = kTolerance * std::max(1.0, std::abs(values[c]));
    if (!(values[c] >= columns_[c].lower - slack && values[c] <= columns_[c].upper + slack))
      return false;
    if (columns_[c].integer && values[c] != std::round(values[c])) return false;
  }
  return std::all_of(rows_.begin(), rows_.end(), [&](const Row& row) {
    double left = 0;
    double scale = std::max(1.0, std::abs(row.right));
    for (const auto& term : row.terms) {
      const double part = term.coefficient * values[static_cast<std::size_t>(term.column)];
      left += part;
      scale = std::max(scale, std::abs(part));
    }
    const double over = left - row.right;
    return row.sense == Sense::equal ? std::abs(over) <= kTolerance * scale
                                     : over <= kTolerance * scale;
  });
}

double LinearProgram::cost(const std::vector<double>& values) const {
  double sum = 0;
  for (std::size_t c = 0; c < columns_.size(); ++c) sum += columns_[c].cost * values[c];
  return sum;
}

// One CBC model, from loading to its end; used under the lock.
class CbcModel {
 public:
  CbcModel(const LinearProgram& program, bool relaxed) : program_(program), model_(Cbc_newModel()) {
    Cbc_setLogLevel(model_.get(), 0);
    load();
    for (std::size_t c = 0; c < program.columns_.size() && !relaxed; ++c)
      if (program.columns_[c].integer) Cbc_setInteger(model_.get(), static_cast<int>(c));
  }

  void start_from(const std::vector<double>& values) {
    std::vector<int> columns(values.size());
    for (std::size_t c = 0; c < columns.size(); ++c) columns[c] = static_cast<int>(c);
    Cbc_setMIPStartI(model_.get(), static_cast<int>(columns.size()), columns.data(), values.data());
  }

  Result<ProgramSolution> run(const SolverLimits& limits, bool relaxed) {
    const double seconds = std::max(0.001, limits.time_ms / 1000);
    Cbc_setParameter(model_.get(), "timeMode", "elapsed");
    Cbc_setParameter(model_.get(), "threads", "0");
    // Where time ends within it, CglPreProcess::postProcess of CBC 2.10 reads what is not there.
    Cbc_setParameter(model_.get(), "preprocess", "off");
    Cbc_setMaximumSeconds(model_.get(), seconds);
    Cbc_setMaximumNodes(model_.get(), limits.nodes_max);
    Cbc_setAllowableFractionGap(model_.get(), limits.relative_gap);
    Cbc_solve(model_.get());
    if (Cbc_isProvenInfeasible(model_.get()) != 0)
      return Error{Errc::infeasible, "the integer program has no solution", "CBC", {}};
    const double* found =
        relaxed ? Cbc_getColSolution(model_.get()) : Cbc_bestSolution(model_.get());
    if (found == nullptr)
      return Error{Errc::timed_out, "no solution within the time limit", "CBC", {}};
    return checked({found, found + program_.column_count()}, relaxed);
  }

 private:
  void load() {
    const auto column_count = program_.columns_.size();
    std::vector<CoinBigIndex> starts(column_count + 1, 0);
    for (const auto& row : program_.rows_)
      for (const auto& term : row.terms) ++starts[static_cast<std::size_t>(term.column) + 1];
    for (std::size_t c = 0; c < column_count; ++c) starts[c + 1] += starts[c];
    std::vector<CoinBigIndex> next(starts.begin(), starts.end() - 1);
    std::vector<int> row_of(static_cast<std::size_t>(starts.back()));
    std::vector<double> value(row_of.size());
    std::vector<double> row_lower;
    std::vector<double> row_upper;
    for (std::size_t r = 0; r < program_.rows_.size(); ++r) {
      const auto& row = program_.rows_[r];
      for (const auto& term : row.terms) {
        const auto at = static_cast<std::size_t>(next[static_cast<std::size_t>(term.column)]++);
        row_of[at] = static_cast<int>(r);
        value[at] = term.coefficient;
      }
      row_lower.push_back(row.sense == LinearProgram::Sense::equal ? row.right : -HUGE_VAL);
      row_upper.push_back(row.right);
    }
    std::vector<double> lower;
    std::vector<double> upper;
    std::vector<double> cost;
    for (const auto& column : program_.columns_) {
      lower.push_back(column.lower);
      upper.push_back(column.upper);
      cost.push_back(column.cost);
    }
    Cbc_loadProblem(model_.get(), static_cast<int>(column_count),
                    static_cast<int>(program_.rows_.size()), starts.data(), row_of.data(),
                    value.data(), lower.data(), upper.data(), cost.data(), row_lower.data(),
                    row_upper.data());
  }

  Result<ProgramSolution> checked(std::vector<double> values, bool relaxed) const {
    for (std::size_t c = 0; c < values.size() && !relaxed; ++c)
      if (program_.columns_[c].integer) values[c] = std::round(values[c]);
    if (!relaxed && !program_.accepts(values))
      return Error{Errc::internal, "the solver's answer breaks its own constraints", "CBC", {}};
    ProgramSolution solution;
    solution.cost = program_.cost(values);
    solution.values = std::move(values);
    solution.optimal = Cbc_isProvenOptimal(model_.get()) != 0;
    solution.bound = solution.optimal
                         ? solution.cost
                         : std::min(solution.cost, Cbc_getBestPossibleObjValue(model_.get()));
    return solution;
  }

  const LinearProgram& program_;
  std::unique_ptr<Cbc_Model, Delete> model_;
};

Result<ProgramSolution> solve_program(const LinearProgram& program, const SolverLimits& limits,
                                      const std::vector<double>& start) {
  const std::lock_guard guard(cbc_lock());
  CbcModel model(program, false);
  if (program.accepts(start)) model.start_from(start);
  return model.run(limits, false);
}

Result<double> solve_relaxation(const LinearProgram& program, double time_ms) {
  const std::lock_guard guard(cbc_lock());
  CbcModel model(program, true);
  auto solution = model.run({.time_ms = time_ms}, true);
  if (!solution.ok()) return solution.error();
  if (!solution.value().optimal)
    return Error{Errc::timed_out, "the relaxation was not solved in time", "CBC", {}};
  return solution.value().cost;
}

}  // namespace troupe::balancer
