// Charts: values under the pointer.
