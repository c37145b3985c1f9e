// Mixed integer linear programs, solved by CBC: the only door to that library.
//
// Not pure: a time limit makes the answer depend on the machine. CBC is not thread-safe (two
// solves at once return wrong objective values without an error), so calls queue behind one lock;
// and every answer is checked here against bounds, integrality and rows before it is returned.

#pragma once

#include <cstdint>
#include <vector>

#include "runtime/vocabulary/result.hpp"

namespace troupe::balancer {

/// Minimise the sum of cost x value over columns, subject to rows.
class LinearProgram {
 public:
  /// Adds a column with 0 <= lower <= value <= upper; returns its index.
  std::int32_t add_column(double cost, double lower, double upper, bool integer);

  /// Adds sum(coefficient x value) = right or <= right. Columns of one row are different.
  enum class Sense : char { equal = 'E', at_most = 'L' };
  struct Term {
    std::int32_t column;
    double coefficient;
  };
  void add_row(std::vector<Term> terms, Sense sense, double right);

  std::size_t column_count() const { return columns_.size(); }
  /// True if the values keep to all bounds, are integers where asked and satisfy all rows, each
  /// within 1e-6 of its scale.
  bool accepts(const std::vector<double>& values) const;
  double cost(const std::vector<double>& values) const;

 private:
  friend class CbcModel;
  struct Column {
    double cost;
    double lower;
    double upper;
    bool integer;
  };
  struct Row {
    std::vector<Term> terms;
    Sense sense;
    double right;
  };
  std::vector<Column> columns_;
  std::vector<Row> rows_;
};

struct SolverLimits {
  double time_ms = 1000;  ///< Elapsed; CBC may overrun it within one relaxation.
  std::int32_t nodes_max = 1'000'000;
  double relative_gap = 0;  ///< Stop when this close to the bound.
};

struct ProgramSolution {
  std::vector<double> values;  ///< Integer columns are exact integers.
  double cost = 0;
  double bound = 0;      ///< No solution costs less.
  bool optimal = false;  ///< Proven within the gap.
};

/// `start`: a solution to begin with, or empty. Ties between optima: whichever CBC meets first.
///
/// Errors:
/// - infeasible: proven to have no solution.
/// - timed_out: no solution within the limits.
/// - internal: CBC returned values that break the program.
Result<ProgramSolution> solve_program(const LinearProgram& program, const SolverLimits& limits,
                                      const std::vector<double>& start = {});

/// Least cost with all columns continuous: a lower bound. Errors: as `solve_program`.
Result<double> solve_relaxation(const LinearProgram& program, double time_ms);

}  // namespace troupe::balancer
