#include "troupe/runtime/checkpoint/checkpoint.hpp"

// Whether the note could be written is lost.
void drop() {
  auto x = troupe::checkpoint::from_directory("somewhere");
  x.set_metadata({{"note", "mine"}});
}
