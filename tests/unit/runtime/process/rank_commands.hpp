#pragma once

#include <string>
#include <vector>

namespace troupe::internal::test {

/// The `rank_main` of this test program: does what the first word of *payload*
/// says, with the rest as its argument.
int run_rank_command(std::string payload, std::vector<int> descriptors);

/// Which signal a forked process that waits forever dies of if it gets
/// *signal*.
int end_of_child(int signal);

} // namespace troupe::internal::test
