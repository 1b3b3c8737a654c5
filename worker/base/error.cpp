// See error.h.
#include "worker/base/error.h"

namespace pm {

int exit_code(ErrorKind kind) {
  switch (kind) {
    case ErrorKind::Usage: case ErrorKind::Request: return 2;
    case ErrorKind::Model: return 3;
    case ErrorKind::DoesNotFit: return 4;
    case ErrorKind::RankLost: return 5;
    case ErrorKind::Interrupted: return 6;
  }
  return 1;
}

}  // namespace pm
