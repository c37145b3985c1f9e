// What the fake NCCL does wrong, and when: rules like `hang@send`, read from a text.
//
//   KIND[=VALUE]@FUNCTION[#N][:RANK], separated by spaces
//
// FUNCTION: a function's name without `nccl`, in lower case (`init`, `split`, `shrink`, `revoke`,
// `abort`, `id`, `group_end`, `all_reduce`, `reduce`, `broadcast`, `send`, `recv`), or `launch`:
// whatever starts work. N: at its N-th call since the script was set, 1 by default. RANK: only of
// that rank of a communicator.
//
//   hang       the call does not return until its communicator is aborted
//   forever    the call does not return
//   error=C    the call returns code C
//   slow=MS    the call takes so long
//   calm=MS    the same, and nobody may abort its communicator meanwhile
//   late=C     the work never ends, and the communicator's state becomes C soon
//   stall      the work never ends
//   taken=MS   the call returns "in progress", and so long NCCL has not begun the work
//   never      opening: this rank's communicator is never ready
//   absent     opening: this rank never comes
//   die        the process ends

#pragma once

#include <mutex>
#include <optional>
#include <string>
#include <vector>

namespace fake_nccl {

struct Fault {
  std::string kind;
  int value = 0;
};

class Script {
 public:
  void set(const std::string& text);

  /// What goes wrong at this call; counts it. `ways`: the function's names. `rank`: -1 where there
  /// is no communicator.
  std::optional<Fault> at(const std::vector<std::string>& ways, int rank);

 private:
  struct Rule {
    Fault fault;
    std::string function;
    int left = 1;
    int rank = -1;
  };
  std::mutex mutex_;
  std::vector<Rule> rules_;
};

}  // namespace fake_nccl
