#include "balancer/loads/cbc_solver.hpp"

#include <catch2/catch_approx.hpp>
#include <catch2/catch_test_macros.hpp>
#include <thread>

#include "runtime/vocabulary/random.hpp"

namespace troupe::balancer {
namespace {

using Sense = LinearProgram::Sense;

// A knapsack as minimisation: take the most value within the capacity.
LinearProgram knapsack(const std::vector<int>& values, const std::vector<int>& weights,
                       int capacity) {
  LinearProgram program;
  std::vector<LinearProgram::Term> room;
  for (std::size_t i = 0; i < values.size(); ++i)
    room.push_back({program.add_column(-values[i], 0, 1, true), double(weights[i])});
  program.add_row(std::move(room), Sense::at_most, capacity);
  return program;
}

int best_value(const std::vector<int>& values, const std::vector<int>& weights, int capacity) {
  int best = 0;
  for (unsigned mask = 0; mask < (1u << values.size()); ++mask) {
    int value = 0;
    int weight = 0;
    for (std::size_t i = 0; i < values.size(); ++i)
      if (mask >> i & 1) {
        value += values[i];
        weight += weights[i];
      }
    if (weight <= capacity) best = std::max(best, value);
  }
  return best;
}

bool solves_random_knapsacks(std::uint64_t seed, int count) {
  Random random(seed);
  for (int round = 0; round < count; ++round) {
    std::vector<int> values(8);
    std::vector<int> weights(8);
    for (auto& value : values) value = 1 + static_cast<int>(random.below(30));
    for (auto& weight : weights) weight = 1 + static_cast<int>(random.below(30));
    const auto solution = solve_program(knapsack(values, weights, 60), {});
    if (!solution.ok() || !solution.value().optimal) return false;
    if (solution.value().cost != -best_value(values, weights, 60)) return false;
  }
  return true;
}

TEST_CASE("a knapsack is solved to the optimum", "[balancer]") {
  // Values 6, 5, 4 of weights 4, 3, 3 within 6: 5 + 4 beats 6.
  const auto solution = solve_program(knapsack({6, 5, 4}, {4, 3, 3}, 6), {}).value();
  CHECK(solution.values == std::vector<double>{0, 1, 1});
  CHECK(solution.cost == -9);
  CHECK(solution.optimal);
}

TEST_CASE("the relaxation bounds the program", "[balancer]") {
  // Continuous: all of 5 (3) and three quarters of 6 (3 of 4): 5 + 4.5.
  const auto bound = solve_relaxation(knapsack({6, 5, 4}, {4, 3, 3}, 6), 1000);
  CHECK(bound.value() == Catch::Approx(-9.5));
}

TEST_CASE("a start is accepted and never made worse", "[balancer]") {
  const auto program = knapsack({6, 5, 4}, {4, 3, 3}, 6);
  CHECK(program.accepts({1, 0, 0}));
  CHECK_FALSE(program.accepts({1, 1, 0}));
  CHECK_FALSE(program.accepts({0.5, 0, 0}));
  CHECK_FALSE(program.accepts({}));
  CHECK(solve_program(program, {}, {1, 0, 0}).value().cost <= -6);
}

TEST_CASE("a program without solution says so", "[balancer][errors]") {
  LinearProgram program;
  const auto column = program.add_column(1, 0, 1, true);
  program.add_row({{column, 1}}, Sense::equal, 2);
  const auto solution = solve_program(program, {});
  REQUIRE_FALSE(solution.ok());
  CHECK(solution.error().code == Errc::infeasible);
}

TEST_CASE("two threads that solve at once both get right answers", "[balancer]") {
  bool first = false;
  bool second = false;
  std::thread one([&] { first = solves_random_knapsacks(1, 40); });
  std::thread two([&] { second = solves_random_knapsacks(2, 40); });
  one.join();
  two.join();
  CHECK(first);
  CHECK(second);
}

}  // namespace
}  // namespace troupe::balancer
