// The binary.

#include "app/program.hpp"

int main(int count, char** words) { return troupe::run_program(count, words); }
