#pragma once

namespace troupe::internal {

/// Makes LibTorch's operators use *count* threads whenever the calling thread
/// calls them; other threads keep their number. Does nothing in a LibTorch
/// without OpenMP.
void use_operator_threads(int count);

/// As long as it exists, operators that its thread calls use at most *most*
/// threads; 0: as many as before.
class operator_thread_limit {
public:
  explicit operator_thread_limit(int most);
  operator_thread_limit(const operator_thread_limit&) = delete;
  operator_thread_limit& operator=(const operator_thread_limit&) = delete;
  ~operator_thread_limit();

private:
  const int most_;
  const int before_;
};

} // namespace troupe::internal
