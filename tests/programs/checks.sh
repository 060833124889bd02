#!/bin/sh
# Leaves a file for its rank, and says so.
echo "creating $RANK"
echo "$RANK of $WORLD_SIZE" > "ran-$RANK"
