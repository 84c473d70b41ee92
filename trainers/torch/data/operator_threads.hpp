#pragma once

namespace troupe {

/// Makes LibTorch's operators run on the calling thread alone whenever this
/// thread calls them; other threads keep their number. Does nothing in a
/// LibTorch without OpenMP.
void use_no_operator_threads();

} // namespace troupe
